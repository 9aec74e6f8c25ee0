// Computed constants that are missing, damaged, stale or impossible are named with file, tensor and site.

// RUN: rm -rf %t && mkdir -p %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s > %t/in.mlir
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: site 'up': {{.*}}work/layer_0.safetensors: {{.*}}which holds the computed tensor "up.smooth_scale"; remove the work folder and compute it again

// RUN: sed -e "s|, equant.work = \"[^\"]*\"||; s|equant.work = \"[^\"]*\", ||" %t/in.mlir | not easyquant-opt --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=WORK
// WORK: error: site 'up': the computed tensor 'up.smooth_scale' is in file 'layer_0.safetensors' of a folder that the module does not name: it has no equant.work

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors other up.smooth_scale=f32:16 up.weight_scale=f32:24x1 up.weight_codes=i8:24x16
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=STALE
// STALE: error: site 'up': {{.*}}layer_0.safetensors: tensor "up.smooth_scale": the file is of another run: its stamp is "other", expected "stamp"

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors stamp up.smooth_scale=f32:15
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=SHAPE
// SHAPE: error: site 'up': {{.*}}layer_0.safetensors: tensor "up.smooth_scale": expected F32 [16], found F32 [15]

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors stamp up.smooth_scale=f32:16 up.weight_scale=f32:24x1 up.weight_codes=i8:24x16
// RUN: truncate -s -3 %t/work/layer_0.safetensors
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=TRUNCATED
// TRUNCATED: error: site 'up': {{.*}}layer_0.safetensors: {{.*}}which holds the computed tensor "up.smooth_scale"

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors stamp up.smooth_scale=zero:16 up.weight_scale=f32:24x1 up.weight_codes=i8:24x16
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=DIVIDED
// DIVIDED: error: site 'up': tensor 'model.layers.0.mlp.up_proj.weight': row 0, column 0 is {{-?}}inf after it was divided by 0, element 0 of 'up.smooth_scale'

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors stamp up.smooth_scale=f32:16 up.weight_scale=zero:24x1 up.weight_codes=i8:24x16
// RUN: not easyquant-opt %t/in.mlir --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=SCALE
// SCALE: error: site 'up': {{.*}}layer_0.safetensors: tensor 'up.weight_scale': row 0, column 0 is 0, expected 1.1754944e-38 to 3.4028235e+38

// RUN: %python %S/Inputs/work_folder.py %t/work/layer_0.safetensors stamp up.smooth_scale=f32:16 up.weight_scale=f32:24x1 up.weight_codes=i8:24x16
// RUN: sed -e "s|i8, symmetric|i4, symmetric|; s|x16xi8|x16xi4|g" %t/in.mlir | not easyquant-opt --equant-materialize-weights=output=%t 2>&1 | FileCheck %s --check-prefix=RANGE
// RANGE: error: site 'up': {{.*}}layer_0.safetensors: tensor 'up.weight_codes': row {{[0-9]+}}, column {{[0-9]+}} is {{.*}}, expected -7 to 7

// RUN: not ls %t/weights.safetensors

#w = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @up.smooth_scale(#ml_program.extern : tensor<16xf32>) : tensor<16xf32> {equant.file = "layer_0.safetensors", equant.stamp = "stamp"}
  ml_program.global private @up.weight_scale(#ml_program.extern : tensor<24x1xf32>) : tensor<24x1xf32> {equant.file = "layer_0.safetensors", equant.stamp = "stamp"}
  ml_program.global private @up.weight_codes(#ml_program.extern : tensor<24x16xi8>) : tensor<24x16xi8> {equant.file = "layer_0.safetensors", equant.stamp = "stamp"}

  func.func @layer(%x: tensor<?x16xf32>) -> tensor<?x24xf32> {
    %w = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %f = ml_program.global_load_const @up.smooth_scale : tensor<16xf32>
    %w2 = equant.scale %w by %f {axis = 1, divide} : tensor<24x16xf32>, tensor<16xf32>
    %s = ml_program.global_load_const @up.weight_scale : tensor<24x1xf32>
    %r = ml_program.global_load_const @up.weight_codes : tensor<24x16xi8>
    %c = equant.quantize %w2 scale(%s) rounded(%r) : (tensor<24x16xf32>, tensor<24x1xf32>, tensor<24x16xi8>) -> !equant.weight<24x16, #w>
    %y = equant.linear %x, %c {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<24x16, #w>) -> tensor<?x24xf32>
    return %y : tensor<?x24xf32>
  }
}
