// RUN: rm -rf %t && mkdir %t
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=Q4 ignore=skipped" -o %t/out.mlir
// RUN: FileCheck %s --check-prefixes=CHECK,ASYM < %t/out.mlir
// RUN: easyquant-opt %s --equant-absmax=scheme=Q4 | FileCheck %s --check-prefix=SYM
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=Q6 group-size=32 head=int8" | FileCheck %s --check-prefix=ASKED

// The recipe in the module is rules of one format, and says the same when it is read again.
// RUN: sed -n -e 's|.*equant.recipe = \(.*\)} {|\1|p' %t/out.mlir > %t/recipe.txt
// RUN: %python %S/Inputs/attribute_to_json.py %t/recipe.txt > %t/a.json
// RUN: easyquant-opt %s --equant-recipe=file=%t/a.json | diff %t/out.mlir -

// A rule takes the mix from the top, or names one.
// RUN: echo '{"scheme": "Q4", "sites": [{"match": "layers.0.o", "weight_observer": "mse"}, {"match": "re:down$", "scheme": "Q3", "method": "absmax"}, {"match": "layers.0.up", "scheme": "W8A16"}]}' > %t/b.json
// RUN: easyquant-opt %s --equant-recipe=file=%t/b.json | FileCheck %s --check-prefix=RULES

// CHECK: equant.recipe = {activation_basis = "hadamard", activations = "dynamic", hadamard_block = 512 : i64, head = "W5A8_ASYM", head_group_size = 64 : i64, ignore = ["skipped"], method = "zeropoint", scheme = "Q4", sites = [
// CHECK-SAME: {activation_basis = "hadamard", activations = "dynamic", group_size = 64 : i64, hadamard_block = 512 : i64, match = "re:^layers\\.([0-2])\\.qkv$", method = "zeropoint", scheme = "W5A8_ASYM", weight_observer = "absmax"},
// CHECK-SAME: {activation_basis = "hadamard", activations = "dynamic", group_size = 64 : i64, hadamard_block = 512 : i64, match = "re:^layers\\.([02])\\.up$", method = "zeropoint", scheme = "W5A8_ASYM", weight_observer = "absmax"},
// CHECK-SAME: {activation_basis = "hadamard", activations = "dynamic", group_size = 64 : i64, hadamard_block = 512 : i64, match = "layers.1.up", method = "zeropoint", scheme = "W4A8_ASYM", weight_observer = "absmax"},
// CHECK-LABEL: func.func private @layer_0(
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.0.qkv"}
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 16, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 16>>, site = "layers.0.o"}
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.0.up"}
// ASYM: weight = <i6, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.0.down"}
// CHECK-LABEL: func.func private @layer_1(
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.1.qkv"}
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 16, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 16>>, site = "layers.1.o"}
// ASYM: weight = <i4, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.1.up"}
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.1.down"}
// CHECK-LABEL: func.func private @layer_2(
// ASYM: weight = <i6, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.2.down"}
// CHECK-LABEL: func.func @forward(
// CHECK: {site = "skipped"}
// ASYM: weight = <i5, asymmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "lm_head"}

// SYM: head = "W5A8", head_group_size = 64 : i64, ignore = [], method = "absmax", scheme = "Q4"
// SYM: rule = absmax, weight = <i4, symmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.1.up"}
// SYM: rule = absmax, weight = <i5, symmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "lm_head"}

// ASKED: weight = <i8, asymmetric, group = 32, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.0.qkv"}
// ASKED: weight = <i8, asymmetric, channel, hadamard = 64>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "lm_head"}

// RULES: sites = [{{{.*}}match = "layers.0.up"{{.*}}, {{{.*}}match = "layers.0.o", method = "zeropoint", scheme = "W5A8_ASYM", weight_observer = "mse"},
// RULES: rule = mse, weight = <i5, asymmetric, group = 64, hadamard = 16, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 16>>, site = "layers.0.o"}
// RULES: weight = <i8, symmetric, channel>>, site = "layers.0.up"}
// RULES: rule = absmax, weight = <i5, symmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.0.down"}
// RULES: rule = absmax, weight = <i4, symmetric, group = 64, hadamard = 64, scale = f16>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "layers.1.down"}
module {
  func.func private @layer_0(%x: tensor<?x64xf32>, %a: tensor<192x64xf32>, %w: tensor<64x64xf32>, %n: tensor<64xf32>,
                             %batch: !lm.batch, %cache: !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>) -> tensor<?x64xf32> {
    %h = lm.rms_norm %x, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %qkv = lm.linear %h, %a {site = "layers.0.qkv"} : (tensor<?x64xf32>, tensor<192x64xf32>) -> tensor<?x192xf32>
    %q, %k, %v = lm.split %qkv : tensor<?x192xf32> -> tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
    %y = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 4, head_dim = 16, scale = 0.25}
           : tensor<?x64xf32>, tensor<?x64xf32>, !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>
    %o = lm.linear %y, %w {site = "layers.0.o"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %m = lm.rms_norm %o, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %u = lm.linear %m, %w {site = "layers.0.up"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %g = lm.gelu %u approximate tanh : tensor<?x64xf32>
    %d = lm.linear %g, %w {site = "layers.0.down"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    return %d : tensor<?x64xf32>
  }
  func.func private @layer_1(%x: tensor<?x64xf32>, %a: tensor<192x64xf32>, %w: tensor<64x64xf32>, %n: tensor<64xf32>,
                             %batch: !lm.batch, %cache: !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>) -> tensor<?x64xf32> {
    %h = lm.rms_norm %x, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %qkv = lm.linear %h, %a {site = "layers.1.qkv"} : (tensor<?x64xf32>, tensor<192x64xf32>) -> tensor<?x192xf32>
    %q, %k, %v = lm.split %qkv : tensor<?x192xf32> -> tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
    %y = lm.attention %q, %k, %v, %cache, %batch {layer = 1, num_heads = 4, num_kv_heads = 4, head_dim = 16, scale = 0.25}
           : tensor<?x64xf32>, tensor<?x64xf32>, !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>
    %o = lm.linear %y, %w {site = "layers.1.o"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %m = lm.rms_norm %o, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %u = lm.linear %m, %w {site = "layers.1.up"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %g = lm.gelu %u approximate tanh : tensor<?x64xf32>
    %d = lm.linear %g, %w {site = "layers.1.down"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    return %d : tensor<?x64xf32>
  }
  func.func private @layer_2(%x: tensor<?x64xf32>, %a: tensor<192x64xf32>, %w: tensor<64x64xf32>, %n: tensor<64xf32>,
                             %batch: !lm.batch, %cache: !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>) -> tensor<?x64xf32> {
    %h = lm.rms_norm %x, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %qkv = lm.linear %h, %a {site = "layers.2.qkv"} : (tensor<?x64xf32>, tensor<192x64xf32>) -> tensor<?x192xf32>
    %q, %k, %v = lm.split %qkv : tensor<?x192xf32> -> tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
    %y = lm.attention %q, %k, %v, %cache, %batch {layer = 2, num_heads = 4, num_kv_heads = 4, head_dim = 16, scale = 0.25}
           : tensor<?x64xf32>, tensor<?x64xf32>, !lm.kv_cache<layers = 3, kv_heads = 4, head_dim = 16>
    %o = lm.linear %y, %w {site = "layers.2.o"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %m = lm.rms_norm %o, %n {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %u = lm.linear %m, %w {site = "layers.2.up"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %g = lm.gelu %u approximate tanh : tensor<?x64xf32>
    %d = lm.linear %g, %w {site = "layers.2.down"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    return %d : tensor<?x64xf32>
  }
  func.func @forward(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) {
    %s = lm.linear %x, %w {site = "skipped"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    lm.linear %s, %w {site = "lm_head"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    return
  }
}
