// Static activations: scales from the statistics of the model, following what has scaled the weight since.

// RUN: rm -rf %t && mkdir -p %t/work && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: easyquant-translate --import-hf %t/model | easyquant-opt --equant-materialize-weights=output=%t | sed -n -e 's|.*xxh3_128 = "\([0-9a-f]*\)".*|\1|p' > %t/model.hash
// RUN: %python %S/Inputs/static_inputs.py %t/model.hash %t/statistics.safetensors up=16 gate=16
// RUN: %python %S/Inputs/work_folder.py %t/work/smooth.safetensors run smooth=f32:16
// RUN: sed -e "s|DIR|%t|g" %s > %t/in.mlir
// RUN: easyquant-opt %t/in.mlir --equant-quantize -o %t/minmax.mlir
// RUN: easyquant-opt %t/in.mlir --equant-quantize=observer=absmax -o %t/absmax.mlir
// RUN: %python %S/Inputs/static_inputs.py --check %t/statistics.safetensors %t/work/smooth.safetensors %t/minmax.mlir %t/absmax.mlir
// RUN: FileCheck %s < %t/minmax.mlir

// CHECK: equant.linear {{.*}} {input_scale = {{[0-9.e+-]+}} : f32, input_scheme = #equant.scheme<i8, symmetric, tensor>, sites = ["up"]
// CHECK: equant.linear {{.*}} {input_scale = {{[0-9.e+-]+}} : f32, input_scheme = #equant.scheme<i8, asymmetric, tensor>, input_zero_point = {{-?[0-9]+}} : i32, sites = ["gate"]

// With sinks apart the extrema are those of the other tokens.
// RUN: sed -e "s|tensor>>, site|tensor, sinks>>, site|" %t/in.mlir > %t/sinks.mlir
// RUN: easyquant-opt %t/sinks.mlir --equant-quantize -o %t/minmax.mlir
// RUN: easyquant-opt %t/sinks.mlir --equant-quantize=observer=absmax -o %t/absmax.mlir
// RUN: %python %S/Inputs/static_inputs.py --check-inliers %t/statistics.safetensors %t/work/smooth.safetensors %t/minmax.mlir %t/absmax.mlir
// RUN: not easyquant-opt %t/sinks.mlir --equant-quantize=observer=mse 2>&1 | FileCheck %s --check-prefix=TOWERING
// TOWERING: error: site 'up': observer mse takes sinks for tokens like all others; take observer minmax or absmax, or sinks none

// What was observed behind the factors is no longer divided, and no observer has anything to follow.
// RUN: %python %S/Inputs/static_inputs.py %t/model.hash %t/behind.safetensors up=16:0 gate=16
// RUN: sed -e "s|statistics.safetensors|behind.safetensors|" %t/in.mlir > %t/behind.mlir
// RUN: easyquant-opt %t/behind.mlir --equant-quantize -o %t/minmax.mlir
// RUN: easyquant-opt %t/behind.mlir --equant-quantize=observer=absmax -o %t/absmax.mlir
// RUN: %python %S/Inputs/static_inputs.py --check-observed %t/behind.safetensors %t/work/smooth.safetensors %t/minmax.mlir %t/absmax.mlir

// No range follows a rotation, there or back.
// RUN: sed -e "s|channel>, input = <i8, symmetric, tensor>>, site = \"up\"|channel, hadamard = 16>, input = <i8, symmetric, tensor, hadamard = 16>>, site = \"up\"|" %t/in.mlir > %t/rotated.mlir
// RUN: not easyquant-opt %t/rotated.mlir --equant-rotate --equant-quantize 2>&1 | FileCheck %s --check-prefix=ROTATED
// RUN: %python %S/Inputs/static_inputs.py %t/model.hash %t/behind.safetensors up=16:0,16 gate=16
// RUN: sed -e "s|statistics.safetensors|behind.safetensors|" %t/rotated.mlir | easyquant-opt --equant-rotate --equant-quantize | FileCheck %s --check-prefix=BEHIND
// RUN: not easyquant-opt %t/behind.mlir --equant-quantize 2>&1 | FileCheck %s --check-prefix=BACK
// RUN: %python %S/Inputs/static_inputs.py %t/model.hash %t/behind.safetensors up=16:16 gate=16
// RUN: not easyquant-opt %t/behind.mlir --equant-quantize 2>&1 | FileCheck %s --check-prefix=ORDER
// ROTATED: error: site 'up': {{.*}}statistics.safetensors: activations were observed as the model has them, and are read scaled, rotated in blocks of 16: run equant-calibrate behind equant-rotate
// BEHIND: equant.linear {{.*}} input_scheme = #equant.scheme<i8, symmetric, tensor, hadamard = 16>
// BACK: error: site 'up': {{.*}}behind.safetensors: activations were observed scaled, rotated in blocks of 16, and are read scaled: run
// ORDER: error: site 'up': {{.*}}behind.safetensors: activations were observed rotated in blocks of 16, and are read scaled: run

// What observers cannot know, and what is not there.
// RUN: not easyquant-opt %t/in.mlir --equant-quantize=observer=mse 2>&1 | FileCheck %s --check-prefix=SMOOTHED
// RUN: not easyquant-opt %t/in.mlir --equant-quantize=observer=max 2>&1 | FileCheck %s --check-prefix=OBSERVER
// RUN: not easyquant-opt %t/in.mlir "--equant-quantize=observer=ema observer-percentile=99" 2>&1 | FileCheck %s --check-prefix=PERCENTILE
// RUN: sed -e 's|symmetric, tensor>>, site = "up"|symmetric, tensor>, options = {observer = "max"}>, site = "up"|' %t/in.mlir \
// RUN:   | not easyquant-opt --equant-quantize 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: sed -e "s|equant.statistics = \"[^\"]*\", ||" %t/in.mlir | not easyquant-opt --equant-quantize 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: %python %S/Inputs/static_inputs.py %t/model.hash %t/statistics.safetensors gate=16
// RUN: not easyquant-opt %t/in.mlir --equant-quantize 2>&1 | FileCheck %s --check-prefix=SITE
// RUN: echo 0123456789abcdef0123456789abcdef > %t/other.hash
// RUN: %python %S/Inputs/static_inputs.py %t/other.hash %t/statistics.safetensors up=16 gate=16
// RUN: not easyquant-opt %t/in.mlir --equant-quantize 2>&1 | FileCheck %s --check-prefix=OTHER
// SMOOTHED: error: site 'up': observer mse knows its activations as a whole, before they were smoothed channel by channel; take observer minmax or absmax
// OBSERVER: error: unknown observer 'max'; legal are minmax, absmax, percentile, mse, entropy and ema
// OWN: error: site 'up': unknown observer 'max'; legal are minmax, absmax, percentile, mse, entropy and ema
// PERCENTILE: error: a percentile belongs to observer percentile, found ema
// NONE: error: static and online activations need statistics: calibrate first (the module has no equant.statistics), or take dynamic activations
// SITE: error: site 'up': {{.*}}statistics.safetensors: {{.*}}up/minmax
// OTHER: error: {{.*}}statistics.safetensors: {{.*}}model
module attributes {equant.statistics = "DIR/statistics.safetensors", equant.work = "DIR/work", lm.source = "DIR/model"} {
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @smooth(#ml_program.extern : tensor<16xf32>) : tensor<16xf32> {equant.file = "smooth.safetensors", equant.stamp = "run"}
  func.func @layer(%x: tensor<?x16xf32>) {
    %w = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %s = ml_program.global_load_const @smooth : tensor<16xf32>
    %w2 = equant.scale %w by %s {axis = 1} : tensor<24x16xf32>, tensor<16xf32>
    lm.linear %x, %w2 {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, input = <i8, symmetric, tensor>>, site = "up"}
      : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i8, asymmetric, channel>, input = <i8, asymmetric, tensor>>, site = "gate"}
      : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    return
  }
}
