// Codes that exist make the tensors that they make in the place of rounding to nearest, without the weight that they stand for.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: %python %S/Inputs/work_folder.py %t/work/codes.safetensors stamp q.codes=i4:16x16 q.scale=f32:16x2 q.zero=i32:16x2
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s | easyquant-opt --equant-materialize-weights=output=%t | FileCheck %s
// RUN: %python -c "import sys; sys.path.insert(0, '%S/Inputs'); from check_weights import load; t, _ = load('%t/weights.safetensors'); \
// RUN:   q = 'model.layers.0.self_attn.q_proj.weight'; assert all(t[q + s][1:2] + t[q + s][3:] == t['q.codes' + s][1:2] + t['q.codes' + s][3:] for s in ('', '_scale', '_zero_point'))"

// What they stand for is all that is known, so that there is no error.
// CHECK: largest_error = 0.000000e+00 : f64, name = "existing"
#w4 = #equant.scheme<i4, asymmetric, group = 8>
!w = !equant.weight<16x16, #w4>
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @q.codes(#ml_program.extern : tensor<16x16xi4>) : tensor<16x16xi4> {equant.file = "codes.safetensors", equant.stamp = "stamp"}
  ml_program.global private @q.scale(#ml_program.extern : tensor<16x2xf32>) : tensor<16x2xf32> {equant.file = "codes.safetensors", equant.stamp = "stamp"}
  ml_program.global private @q.zero(#ml_program.extern : tensor<16x2xi32>) : tensor<16x2xi32> {equant.file = "codes.safetensors", equant.stamp = "stamp"}
  // CHECK: equant.packed_linear {{.*}}sites = ["existing"]
  func.func @forward(%x: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
    %c = ml_program.global_load_const @q.codes : tensor<16x16xi4>
    %s = ml_program.global_load_const @q.scale : tensor<16x2xf32>
    %z = ml_program.global_load_const @q.zero : tensor<16x2xi32>
    %w = equant.from_codes %c scale(%s) zero_point(%z) : (tensor<16x16xi4>, tensor<16x2xf32>, tensor<16x2xi32>) -> !w
    %y = equant.linear %x, %w {sites = ["existing"]} : (tensor<?x16xf32>, !w) -> tensor<?x16xf32>
    %f = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>
    %v = equant.quantize %f scale(%s) zero_point(%z) rounded(%c)
           : (tensor<16x16xf32>, tensor<16x2xf32>, tensor<16x2xi32>, tensor<16x16xi4>) -> !w
    %u = equant.linear %x, %v {sites = ["rounded"]} : (tensor<?x16xf32>, !w) -> tensor<?x16xf32>
    return %y, %u : tensor<?x16xf32>, tensor<?x16xf32>
  }
}
