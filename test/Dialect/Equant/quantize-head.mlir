// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 activation-basis=plain" --equant-quantize | FileCheck %s --check-prefixes=CHECK,INT8
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A16 head=int8" --equant-quantize | FileCheck %s --check-prefixes=CHECK,A16
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 head=W5A16 head-group-size=32 activation-basis=plain" --equant-quantize | FileCheck %s --check-prefixes=CHECK,OWN
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 head=float activation-basis=plain" --equant-quantize | FileCheck %s --check-prefixes=CHECK,FLOAT
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 ignore=lm_head activation-basis=plain" --equant-quantize | FileCheck %s --check-prefixes=CHECK,FLOAT
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 targets=up activation-basis=plain" --equant-quantize | FileCheck %s --check-prefixes=CHECK,FLOAT

ml_program.global private @embed(#ml_program.extern : tensor<50x128xf32>) : tensor<50x128xf32>
ml_program.global private @other(#ml_program.extern : tensor<50x128xf32>) : tensor<50x128xf32>
ml_program.global private @up(#ml_program.extern : tensor<128x128xf32>) : tensor<128x128xf32>

// The head reads @embed, as the embedding does: both use int8 codes per channel in every scheme, or what the head is given.
// CHECK-LABEL: func.func @tied(
// INT8:  %[[Q:.*]] = equant.quantize %{{.*}} rule absmax : (tensor<50x128xf32>) -> !equant.weight<50x128, #equant.scheme<i8, symmetric, channel>>
// INT8:  equant.embedding %{{.*}}, %[[Q]] :
// INT8:  equant.linear {{.*}} sites = ["up"]} : ({{.*}}, !equant.weight<128x128, #equant.scheme<i4, symmetric, group = 128, scale = f16>>)
// INT8:  equant.linear {{.*}} {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["lm_head"]} : ({{.*}}, !equant.weight<50x128, #equant.scheme<i8, symmetric, channel>>)
// A16:   equant.linear {{.*}} {sites = ["lm_head"]} : ({{.*}}, !equant.weight<50x128, #equant.scheme<i8, symmetric, channel>>)
// OWN:   equant.embedding {{.*}}, !equant.weight<50x128, #equant.scheme<i5, symmetric, group = 32, scale = f16>>)
// OWN:   equant.linear {{.*}} {sites = ["lm_head"]} : ({{.*}}, !equant.weight<50x128, #equant.scheme<i5, symmetric, group = 32, scale = f16>>)
// FLOAT: lm.embedding
// FLOAT: equant.linear {{.*}} sites = ["up"]
// FLOAT: lm.linear {{.*}} {site = "lm_head"}
func.func @tied(%tokens: tensor<?xi32>) -> tensor<?x50xf32> {
  %table = ml_program.global_load_const @embed : tensor<50x128xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<50x128xf32> -> tensor<?x128xf32>
  %u = ml_program.global_load_const @up : tensor<128x128xf32>
  %y = lm.linear %x, %u {site = "up"} : (tensor<?x128xf32>, tensor<128x128xf32>) -> tensor<?x128xf32>
  %h = ml_program.global_load_const @embed : tensor<50x128xf32>
  %z = lm.linear %y, %h {site = "lm_head"} : (tensor<?x128xf32>, tensor<50x128xf32>) -> tensor<?x50xf32>
  return %z : tensor<?x50xf32>
}

// A table of its own stays float.
// CHECK-LABEL: func.func @untied(
// CHECK:         lm.embedding
func.func @untied(%tokens: tensor<?xi32>) -> tensor<?x128xf32> {
  %table = ml_program.global_load_const @other : tensor<50x128xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<50x128xf32> -> tensor<?x128xf32>
  return %x : tensor<?x128xf32>
}
