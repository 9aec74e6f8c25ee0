// What SmoothQuant needs and does not find. (test_smooth_quant.py has the statistics that do not fit.)

// RUN: rm -rf %t && mkdir -p %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: %python %S/Inputs/statistics_file.py %t/statistics.safetensors 0123 up=16
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s > %t/in.mlir
// RUN: not easyquant-opt %t/in.mlir --equant-smooth-quant 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: SmoothQuant needs the largest magnitude of each channel: run equant-calibrate before, or give statistics=FILE

// RUN: not easyquant-opt %t/in.mlir --equant-smooth-quant=statistics=%t/no.safetensors 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: {{.*}}no.safetensors

// RUN: not easyquant-opt %t/in.mlir --equant-smooth-quant=statistics=%t/model/model.safetensors 2>&1 | FileCheck %s --check-prefix=FORMAT
// FORMAT: error: {{.*}}model.safetensors: not a statistics file of this version

// RUN: not easyquant-opt %t/in.mlir --equant-smooth-quant=statistics=%t/statistics.safetensors 2>&1 | FileCheck %s --check-prefix=OTHER
// OTHER: error: {{.*}}statistics.safetensors: statistics of another model: they were gathered with the model of checksum "0123"

// RUN: sed -e "s|, equant.work = \"[^\"]*\"||" %t/in.mlir | not easyquant-opt - --equant-smooth-quant=statistics=%t/statistics.safetensors 2>&1 | FileCheck %s --check-prefix=WORK
// WORK: error: no folder for what methods compute: give the option work, or the module attribute equant.work

// Without a site that asks for it nothing is needed, and nothing happens.
// RUN: sed -e "s|smoothquant|gptq|" %t/in.mlir | easyquant-opt - --equant-smooth-quant | FileCheck %s --check-prefix=OTHERS
// OTHERS-NOT: equant.scale
// OTHERS-NOT: equant.transforms

// RUN: not ls %t/work

#plan = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>>
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.post_attention_layernorm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  func.func @layer(%x: tensor<?x16xf32>) -> tensor<?x24xf32> {
    %norm = ml_program.global_load_const @model.layers.0.post_attention_layernorm.weight : tensor<16xf32>
    %n = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
    %w = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %y = lm.linear %n, %w {equant.plan = #plan, site = "up"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    return %y : tensor<?x24xf32>
  }
}
