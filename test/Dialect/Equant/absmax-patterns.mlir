// RUN: easyquant-opt %s "--equant-absmax=ignore=layers.0.q,re:down$" | FileCheck %s --check-prefix=IGNORE
// RUN: easyquant-opt %s "--equant-absmax=targets=re:^layers\.1\.,layers.0.q ignore=layers.1.q" | FileCheck %s --check-prefix=TARGETS

// IGNORE: ignore = ["layers.0.q", "re:down$"]
// IGNORE: lm.linear {{.*}} {site = "layers.0.q"}
// IGNORE: lm.linear {{.*}} {site = "layers.0.down"}
// IGNORE: lm.linear {{.*}} {equant.plan = {{.*}} site = "layers.1.q"}
// IGNORE: lm.linear {{.*}} {site = "layers.1.down"}

// Ignoring is stronger than targeting.
// TARGETS: targets = ["re:^layers\\.1\\.", "layers.0.q"]
// TARGETS: lm.linear {{.*}} {equant.plan = {{.*}} site = "layers.0.q"}
// TARGETS: lm.linear {{.*}} {site = "layers.0.down"}
// TARGETS: lm.linear {{.*}} {site = "layers.1.q"}
// TARGETS: lm.linear {{.*}} {equant.plan = {{.*}} site = "layers.1.down"}
func.func @forward(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %a = lm.linear %x, %w {site = "layers.0.q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %b = lm.linear %a, %w {site = "layers.0.down"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %c = lm.linear %b, %w {site = "layers.1.q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %d = lm.linear %c, %w {site = "layers.1.down"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %d : tensor<?x8xf32>
}
