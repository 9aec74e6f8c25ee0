#map = affine_map<(d0, d1, d2) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#map3 = affine_map<(d0, d1, d2) -> (d2)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map8 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map9 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map11 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map12 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map13 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1x6xi64>) -> tensor<1x6x32xf32>, sym_name = "forward"}> ({
  ^bb0(%arg0: tensor<1x6xi64>):
    %0 = "arith.constant"() <{value = 0 : i64}> : () -> i64
    %1 = "arith.constant"() <{value = 32 : index}> : () -> index
    %2 = "arith.constant"() <{value = 0.000000e+00 : f32}> : () -> f32
    %3 = "arith.constant"() <{value = 0xFF800000 : f32}> : () -> f32
    %4 = "arith.constant"() <{value = 1.000000e+00 : f32}> : () -> f32
    %5 = "arith.constant"() <{value = dense_resource<torch_tensor_32_16_torch.float32_1> : tensor<32x16xf32>}> : () -> tensor<32x16xf32>
    %6 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_2> : tensor<16xf32>}> : () -> tensor<16xf32>
    %7 = "arith.constant"() <{value = dense_resource<torch_tensor_16_24_torch.float32> : tensor<16x24xf32>}> : () -> tensor<16x24xf32>
    %8 = "arith.constant"() <{value = dense_resource<torch_tensor_24_16_torch.float32_1> : tensor<24x16xf32>}> : () -> tensor<24x16xf32>
    %9 = "arith.constant"() <{value = dense_resource<torch_tensor_24_16_torch.float32> : tensor<24x16xf32>}> : () -> tensor<24x16xf32>
    %10 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_1> : tensor<16xf32>}> : () -> tensor<16xf32>
    %11 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_1> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %12 = "arith.constant"() <{value = dense_resource<torch_tensor_6_6_torch.float32> : tensor<6x6xf32>}> : () -> tensor<6x6xf32>
    %13 = "arith.constant"() <{value = 2.8284271247461903 : f64}> : () -> f64
    %14 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32_1> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %15 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %16 = "arith.constant"() <{value = dense_resource<torch_tensor_6_8_torch.float32_1> : tensor<6x8xf32>}> : () -> tensor<6x8xf32>
    %17 = "arith.constant"() <{value = dense_resource<torch_tensor_6_8_torch.float32> : tensor<6x8xf32>}> : () -> tensor<6x8xf32>
    %18 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %19 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32> : tensor<16xf32>}> : () -> tensor<16xf32>
    %20 = "arith.constant"() <{value = 1.000000e-05 : f64}> : () -> f64
    %21 = "arith.constant"() <{value = dense_resource<torch_tensor_32_16_torch.float32> : tensor<32x16xf32>}> : () -> tensor<32x16xf32>
    %22 = "arith.constant"() <{value = 1.600000e+01 : f32}> : () -> f32
    %23 = "tensor.empty"() : () -> tensor<1x6x16xf32>
    %24 = "linalg.generic"(%arg0, %23) <{indexing_maps = [#map, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg186: i64, %arg187: f32):
      %224 = "arith.index_cast"(%arg186) : (i64) -> index
      %225 = "linalg.index"() <{dim = 2 : i64}> : () -> index
      %226 = "arith.cmpi"(%224, %1) <{predicate = 2 : i64}> : (index, index) -> i1
      "cf.assert"(%226) <{msg = "index must be smaller than dim size"}> : (i1) -> ()
      %227 = "arith.cmpi"(%arg186, %0) <{predicate = 5 : i64}> : (i64, i64) -> i1
      "cf.assert"(%227) <{msg = "index must be larger or equal to 0"}> : (i1) -> ()
      %228 = "tensor.extract"(%21, %224, %225) : (tensor<32x16xf32>, index, index) -> f32
      "linalg.yield"(%228) : (f32) -> ()
    }) : (tensor<1x6xi64>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %25 = "linalg.generic"(%24, %24, %23) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg183: f32, %arg184: f32, %arg185: f32):
      %223 = "arith.mulf"(%arg183, %arg184) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%223) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %26 = "tensor.empty"() : () -> tensor<1x6x1xf32>
    %27 = "linalg.fill"(%2, %26) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg181: f32, %arg182: f32):
      "linalg.yield"(%arg181) : (f32) -> ()
    }) : (f32, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %28 = "linalg.generic"(%25, %27) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg179: f32, %arg180: f32):
      %222 = "arith.addf"(%arg179, %arg180) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%222) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %29 = "linalg.generic"(%28, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg177: f32, %arg178: f32):
      %221 = "arith.divf"(%arg177, %22) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%221) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %30 = "linalg.generic"(%29, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg175: f32, %arg176: f32):
      %219 = "arith.truncf"(%20) : (f64) -> f32
      %220 = "arith.addf"(%arg175, %219) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%220) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %31 = "linalg.generic"(%30, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg173: f32, %arg174: f32):
      %218 = "math.rsqrt"(%arg173) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%218) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %32 = "linalg.generic"(%24, %31, %23) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg170: f32, %arg171: f32, %arg172: f32):
      %217 = "arith.mulf"(%arg170, %arg171) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%217) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %33 = "linalg.generic"(%32, %19, %23) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg167: f32, %arg168: f32, %arg169: f32):
      %216 = "arith.mulf"(%arg167, %arg168) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%216) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %34 = "tensor.empty"() : () -> tensor<16x16xf32>
    %35 = "linalg.transpose"(%18, %34) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg165: f32, %arg166: f32):
      "linalg.yield"(%arg165) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %36 = "tensor.collapse_shape"(%33) <{reassociation = [[0, 1], [2]]}> : (tensor<1x6x16xf32>) -> tensor<6x16xf32>
    %37 = "tensor.empty"() : () -> tensor<6x16xf32>
    %38 = "linalg.fill"(%2, %37) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg163: f32, %arg164: f32):
      "linalg.yield"(%arg163) : (f32) -> ()
    }) : (f32, tensor<6x16xf32>) -> tensor<6x16xf32>
    %39 = "linalg.matmul"(%36, %35, %38) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg160: f32, %arg161: f32, %arg162: f32):
      %214 = "arith.mulf"(%arg160, %arg161) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %215 = "arith.addf"(%arg162, %214) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%215) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x16xf32>, tensor<6x16xf32>) -> tensor<6x16xf32>
    %40 = "tensor.expand_shape"(%39) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 6, 2, 8>}> : (tensor<6x16xf32>) -> tensor<1x6x2x8xf32>
    %41 = "tensor.empty"() : () -> tensor<1x2x6x8xf32>
    %42 = "linalg.transpose"(%40, %41) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg158: f32, %arg159: f32):
      "linalg.yield"(%arg158) : (f32) -> ()
    }) : (tensor<1x6x2x8xf32>, tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %43 = "tensor.extract_slice"(%42) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 6, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x4xf32>
    %44 = "tensor.extract_slice"(%42) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 2, 6, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x4xf32>
    %45 = "linalg.generic"(%42, %17, %41) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg155: f32, %arg156: f32, %arg157: f32):
      %213 = "arith.mulf"(%arg155, %arg156) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%213) : (f32) -> ()
    }) : (tensor<1x2x6x8xf32>, tensor<6x8xf32>, tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %46 = "tensor.empty"() : () -> tensor<1x2x6x4xf32>
    %47 = "linalg.generic"(%44, %46) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg153: f32, %arg154: f32):
      %212 = "arith.negf"(%arg153) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%212) : (f32) -> ()
    }) : (tensor<1x2x6x4xf32>, tensor<1x2x6x4xf32>) -> tensor<1x2x6x4xf32>
    %48 = "tensor.concat"(%47, %43) <{dim = 3 : i64}> : (tensor<1x2x6x4xf32>, tensor<1x2x6x4xf32>) -> tensor<1x2x6x8xf32>
    %49 = "linalg.generic"(%48, %16, %41) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg150: f32, %arg151: f32, %arg152: f32):
      %211 = "arith.mulf"(%arg150, %arg151) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%211) : (f32) -> ()
    }) : (tensor<1x2x6x8xf32>, tensor<6x8xf32>, tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %50 = "linalg.generic"(%45, %49, %41) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg147: f32, %arg148: f32, %arg149: f32):
      %210 = "arith.addf"(%arg147, %arg148) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%210) : (f32) -> ()
    }) : (tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %51 = "tensor.empty"() : () -> tensor<16x8xf32>
    %52 = "linalg.transpose"(%15, %51) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg145: f32, %arg146: f32):
      "linalg.yield"(%arg145) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %53 = "tensor.empty"() : () -> tensor<6x8xf32>
    %54 = "linalg.fill"(%2, %53) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg143: f32, %arg144: f32):
      "linalg.yield"(%arg143) : (f32) -> ()
    }) : (f32, tensor<6x8xf32>) -> tensor<6x8xf32>
    %55 = "linalg.matmul"(%36, %52, %54) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg140: f32, %arg141: f32, %arg142: f32):
      %208 = "arith.mulf"(%arg140, %arg141) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %209 = "arith.addf"(%arg142, %208) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%209) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
    %56 = "tensor.expand_shape"(%55) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 6, 1, 8>}> : (tensor<6x8xf32>) -> tensor<1x6x1x8xf32>
    %57 = "tensor.empty"() : () -> tensor<1x1x6x8xf32>
    %58 = "linalg.transpose"(%56, %57) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg138: f32, %arg139: f32):
      "linalg.yield"(%arg138) : (f32) -> ()
    }) : (tensor<1x6x1x8xf32>, tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
    %59 = "tensor.extract_slice"(%58) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 1, 6, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x1x6x8xf32>) -> tensor<1x1x6x4xf32>
    %60 = "tensor.extract_slice"(%58) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 1, 6, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x1x6x8xf32>) -> tensor<1x1x6x4xf32>
    %61 = "linalg.generic"(%58, %17, %57) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg135: f32, %arg136: f32, %arg137: f32):
      %207 = "arith.mulf"(%arg135, %arg136) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%207) : (f32) -> ()
    }) : (tensor<1x1x6x8xf32>, tensor<6x8xf32>, tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
    %62 = "tensor.empty"() : () -> tensor<1x1x6x4xf32>
    %63 = "linalg.generic"(%60, %62) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg133: f32, %arg134: f32):
      %206 = "arith.negf"(%arg133) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%206) : (f32) -> ()
    }) : (tensor<1x1x6x4xf32>, tensor<1x1x6x4xf32>) -> tensor<1x1x6x4xf32>
    %64 = "tensor.concat"(%63, %59) <{dim = 3 : i64}> : (tensor<1x1x6x4xf32>, tensor<1x1x6x4xf32>) -> tensor<1x1x6x8xf32>
    %65 = "linalg.generic"(%64, %16, %57) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg130: f32, %arg131: f32, %arg132: f32):
      %205 = "arith.mulf"(%arg130, %arg131) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%205) : (f32) -> ()
    }) : (tensor<1x1x6x8xf32>, tensor<6x8xf32>, tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
    %66 = "linalg.generic"(%61, %65, %57) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg127: f32, %arg128: f32, %arg129: f32):
      %204 = "arith.addf"(%arg127, %arg128) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%204) : (f32) -> ()
    }) : (tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
    %67 = "linalg.transpose"(%14, %51) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg125: f32, %arg126: f32):
      "linalg.yield"(%arg125) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %68 = "linalg.matmul"(%36, %67, %54) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg122: f32, %arg123: f32, %arg124: f32):
      %202 = "arith.mulf"(%arg122, %arg123) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %203 = "arith.addf"(%arg124, %202) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%203) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
    %69 = "tensor.expand_shape"(%68) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 6, 1, 8>}> : (tensor<6x8xf32>) -> tensor<1x6x1x8xf32>
    %70 = "linalg.transpose"(%69, %57) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg120: f32, %arg121: f32):
      "linalg.yield"(%arg120) : (f32) -> ()
    }) : (tensor<1x6x1x8xf32>, tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
    %71 = "tensor.empty"() : () -> tensor<1x1x2x6x8xf32>
    %72 = "linalg.generic"(%66, %71) <{indexing_maps = [#map8, #map9], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg118: f32, %arg119: f32):
      "linalg.yield"(%arg118) : (f32) -> ()
    }) : (tensor<1x1x6x8xf32>, tensor<1x1x2x6x8xf32>) -> tensor<1x1x2x6x8xf32>
    %73 = "tensor.collapse_shape"(%72) <{reassociation = [[0], [1, 2], [3], [4]]}> : (tensor<1x1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %74 = "linalg.generic"(%70, %71) <{indexing_maps = [#map8, #map9], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg116: f32, %arg117: f32):
      "linalg.yield"(%arg116) : (f32) -> ()
    }) : (tensor<1x1x6x8xf32>, tensor<1x1x2x6x8xf32>) -> tensor<1x1x2x6x8xf32>
    %75 = "tensor.empty"() : () -> tensor<1x2x8x6xf32>
    %76 = "linalg.transpose"(%73, %75) <{permutation = array<i64: 0, 1, 3, 2>}> ({
    ^bb0(%arg114: f32, %arg115: f32):
      "linalg.yield"(%arg114) : (f32) -> ()
    }) : (tensor<1x2x6x8xf32>, tensor<1x2x8x6xf32>) -> tensor<1x2x8x6xf32>
    %77 = "tensor.collapse_shape"(%50) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x6x8xf32>) -> tensor<2x6x8xf32>
    %78 = "tensor.collapse_shape"(%76) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x8x6xf32>) -> tensor<2x8x6xf32>
    %79 = "tensor.empty"() : () -> tensor<2x6x6xf32>
    %80 = "linalg.fill"(%2, %79) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg112: f32, %arg113: f32):
      "linalg.yield"(%arg112) : (f32) -> ()
    }) : (f32, tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
    %81 = "linalg.batch_matmul"(%77, %78, %80) <{indexing_maps = [#map10, #map11, #map12], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg109: f32, %arg110: f32, %arg111: f32):
      %200 = "arith.mulf"(%arg109, %arg110) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %201 = "arith.addf"(%arg111, %200) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%201) : (f32) -> ()
    }) : (tensor<2x6x8xf32>, tensor<2x8x6xf32>, tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
    %82 = "tensor.expand_shape"(%81) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 6, 6>}> : (tensor<2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %83 = "tensor.empty"() : () -> tensor<1x2x6x6xf32>
    %84 = "linalg.generic"(%82, %83) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg107: f32, %arg108: f32):
      %198 = "arith.truncf"(%13) : (f64) -> f32
      %199 = "arith.divf"(%arg107, %198) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%199) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %85 = "linalg.generic"(%84, %12, %83) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg104: f32, %arg105: f32, %arg106: f32):
      %197 = "arith.addf"(%arg104, %arg105) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%197) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<6x6xf32>, tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %86 = "tensor.empty"() : () -> tensor<1x2x6xi64>
    %87 = "linalg.fill"(%0, %86) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg102: i64, %arg103: i64):
      "linalg.yield"(%arg102) : (i64) -> ()
    }) : (i64, tensor<1x2x6xi64>) -> tensor<1x2x6xi64>
    %88 = "tensor.empty"() : () -> tensor<1x2x6xf32>
    %89 = "linalg.fill"(%3, %88) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg100: f32, %arg101: f32):
      "linalg.yield"(%arg100) : (f32) -> ()
    }) : (f32, tensor<1x2x6xf32>) -> tensor<1x2x6xf32>
    %90:2 = "linalg.generic"(%85, %89, %87) <{indexing_maps = [#map6, #map12, #map12], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 2>}> ({
    ^bb0(%arg97: f32, %arg98: f32, %arg99: i64):
      %192 = "linalg.index"() <{dim = 3 : i64}> : () -> index
      %193 = "arith.index_cast"(%192) : (index) -> i64
      %194 = "arith.maximumf"(%arg97, %arg98) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %195 = "arith.cmpf"(%arg97, %arg98) <{fastmath = #arith.fastmath<none>, predicate = 2 : i64}> : (f32, f32) -> i1
      %196 = "arith.select"(%195, %193, %arg99) : (i1, i64, i64) -> i64
      "linalg.yield"(%194, %196) : (f32, i64) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6xf32>, tensor<1x2x6xi64>) -> (tensor<1x2x6xf32>, tensor<1x2x6xi64>)
    %91 = "tensor.expand_shape"(%90#0) <{reassociation = [[0], [1], [2, 3]], static_output_shape = array<i64: 1, 2, 6, 1>}> : (tensor<1x2x6xf32>) -> tensor<1x2x6x1xf32>
    %92 = "linalg.generic"(%85, %91, %83) <{indexing_maps = [#map6, #map13, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg94: f32, %arg95: f32, %arg96: f32):
      %191 = "arith.subf"(%arg94, %arg95) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%191) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6x1xf32>, tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %93 = "linalg.generic"(%92, %83) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg92: f32, %arg93: f32):
      %190 = "math.exp"(%arg92) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%190) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %94 = "tensor.empty"() : () -> tensor<1x2x6x1xf32>
    %95 = "linalg.fill"(%2, %94) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg90: f32, %arg91: f32):
      "linalg.yield"(%arg90) : (f32) -> ()
    }) : (f32, tensor<1x2x6x1xf32>) -> tensor<1x2x6x1xf32>
    %96 = "linalg.generic"(%93, %95) <{indexing_maps = [#map6, #map13], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg88: f32, %arg89: f32):
      %189 = "arith.addf"(%arg88, %arg89) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%189) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6x1xf32>) -> tensor<1x2x6x1xf32>
    %97 = "linalg.generic"(%93, %96, %83) <{indexing_maps = [#map6, #map13, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg85: f32, %arg86: f32, %arg87: f32):
      %188 = "arith.divf"(%arg85, %arg86) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%188) : (f32) -> ()
    }) : (tensor<1x2x6x6xf32>, tensor<1x2x6x1xf32>, tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %98 = "tensor.collapse_shape"(%97) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x6x6xf32>) -> tensor<2x6x6xf32>
    %99 = "tensor.collapse_shape"(%74) <{reassociation = [[0, 1, 2], [3], [4]]}> : (tensor<1x1x2x6x8xf32>) -> tensor<2x6x8xf32>
    %100 = "tensor.empty"() : () -> tensor<2x6x8xf32>
    %101 = "linalg.fill"(%2, %100) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg83: f32, %arg84: f32):
      "linalg.yield"(%arg83) : (f32) -> ()
    }) : (f32, tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %102 = "linalg.batch_matmul"(%98, %99, %101) <{indexing_maps = [#map10, #map11, #map12], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg80: f32, %arg81: f32, %arg82: f32):
      %186 = "arith.mulf"(%arg80, %arg81) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %187 = "arith.addf"(%arg82, %186) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%187) : (f32) -> ()
    }) : (tensor<2x6x6xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %103 = "tensor.expand_shape"(%102) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 6, 8>}> : (tensor<2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %104 = "tensor.empty"() : () -> tensor<1x6x2x8xf32>
    %105 = "linalg.transpose"(%103, %104) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg78: f32, %arg79: f32):
      "linalg.yield"(%arg78) : (f32) -> ()
    }) : (tensor<1x2x6x8xf32>, tensor<1x6x2x8xf32>) -> tensor<1x6x2x8xf32>
    %106 = "linalg.transpose"(%11, %34) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg76: f32, %arg77: f32):
      "linalg.yield"(%arg76) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %107 = "tensor.collapse_shape"(%105) <{reassociation = [[0, 1], [2, 3]]}> : (tensor<1x6x2x8xf32>) -> tensor<6x16xf32>
    %108 = "linalg.matmul"(%107, %106, %38) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg73: f32, %arg74: f32, %arg75: f32):
      %184 = "arith.mulf"(%arg73, %arg74) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %185 = "arith.addf"(%arg75, %184) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%185) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x16xf32>, tensor<6x16xf32>) -> tensor<6x16xf32>
    %109 = "tensor.expand_shape"(%108) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 6, 16>}> : (tensor<6x16xf32>) -> tensor<1x6x16xf32>
    %110 = "linalg.generic"(%24, %109, %23) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg70: f32, %arg71: f32, %arg72: f32):
      %183 = "arith.addf"(%arg70, %arg71) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%183) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %111 = "linalg.generic"(%110, %110, %23) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg67: f32, %arg68: f32, %arg69: f32):
      %182 = "arith.mulf"(%arg67, %arg68) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%182) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %112 = "linalg.generic"(%111, %27) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg65: f32, %arg66: f32):
      %181 = "arith.addf"(%arg65, %arg66) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%181) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %113 = "linalg.generic"(%112, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg63: f32, %arg64: f32):
      %180 = "arith.divf"(%arg63, %22) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%180) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %114 = "linalg.generic"(%113, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg61: f32, %arg62: f32):
      %178 = "arith.truncf"(%20) : (f64) -> f32
      %179 = "arith.addf"(%arg61, %178) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%179) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %115 = "linalg.generic"(%114, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg59: f32, %arg60: f32):
      %177 = "math.rsqrt"(%arg59) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%177) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %116 = "linalg.generic"(%110, %115, %23) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg56: f32, %arg57: f32, %arg58: f32):
      %176 = "arith.mulf"(%arg56, %arg57) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%176) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %117 = "linalg.generic"(%116, %10, %23) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg53: f32, %arg54: f32, %arg55: f32):
      %175 = "arith.mulf"(%arg53, %arg54) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%175) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %118 = "tensor.empty"() : () -> tensor<16x24xf32>
    %119 = "linalg.transpose"(%9, %118) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg51: f32, %arg52: f32):
      "linalg.yield"(%arg51) : (f32) -> ()
    }) : (tensor<24x16xf32>, tensor<16x24xf32>) -> tensor<16x24xf32>
    %120 = "tensor.collapse_shape"(%117) <{reassociation = [[0, 1], [2]]}> : (tensor<1x6x16xf32>) -> tensor<6x16xf32>
    %121 = "tensor.empty"() : () -> tensor<6x24xf32>
    %122 = "linalg.fill"(%2, %121) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg49: f32, %arg50: f32):
      "linalg.yield"(%arg49) : (f32) -> ()
    }) : (f32, tensor<6x24xf32>) -> tensor<6x24xf32>
    %123 = "linalg.matmul"(%120, %119, %122) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg46: f32, %arg47: f32, %arg48: f32):
      %173 = "arith.mulf"(%arg46, %arg47) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %174 = "arith.addf"(%arg48, %173) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%174) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x24xf32>, tensor<6x24xf32>) -> tensor<6x24xf32>
    %124 = "tensor.expand_shape"(%123) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 6, 24>}> : (tensor<6x24xf32>) -> tensor<1x6x24xf32>
    %125 = "tensor.empty"() : () -> tensor<1x6x24xf32>
    %126 = "linalg.generic"(%124, %125) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg44: f32, %arg45: f32):
      %169 = "arith.negf"(%arg44) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %170 = "math.exp"(%169) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %171 = "arith.addf"(%170, %4) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %172 = "arith.divf"(%4, %171) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%172) : (f32) -> ()
    }) : (tensor<1x6x24xf32>, tensor<1x6x24xf32>) -> tensor<1x6x24xf32>
    %127 = "linalg.generic"(%124, %126, %125) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg41: f32, %arg42: f32, %arg43: f32):
      %168 = "arith.mulf"(%arg41, %arg42) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%168) : (f32) -> ()
    }) : (tensor<1x6x24xf32>, tensor<1x6x24xf32>, tensor<1x6x24xf32>) -> tensor<1x6x24xf32>
    %128 = "linalg.transpose"(%8, %118) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg39: f32, %arg40: f32):
      "linalg.yield"(%arg39) : (f32) -> ()
    }) : (tensor<24x16xf32>, tensor<16x24xf32>) -> tensor<16x24xf32>
    %129 = "linalg.matmul"(%120, %128, %122) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg36: f32, %arg37: f32, %arg38: f32):
      %166 = "arith.mulf"(%arg36, %arg37) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %167 = "arith.addf"(%arg38, %166) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%167) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x24xf32>, tensor<6x24xf32>) -> tensor<6x24xf32>
    %130 = "tensor.expand_shape"(%129) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 6, 24>}> : (tensor<6x24xf32>) -> tensor<1x6x24xf32>
    %131 = "linalg.generic"(%127, %130, %125) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg33: f32, %arg34: f32, %arg35: f32):
      %165 = "arith.mulf"(%arg33, %arg34) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%165) : (f32) -> ()
    }) : (tensor<1x6x24xf32>, tensor<1x6x24xf32>, tensor<1x6x24xf32>) -> tensor<1x6x24xf32>
    %132 = "tensor.empty"() : () -> tensor<24x16xf32>
    %133 = "linalg.transpose"(%7, %132) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg31: f32, %arg32: f32):
      "linalg.yield"(%arg31) : (f32) -> ()
    }) : (tensor<16x24xf32>, tensor<24x16xf32>) -> tensor<24x16xf32>
    %134 = "tensor.collapse_shape"(%131) <{reassociation = [[0, 1], [2]]}> : (tensor<1x6x24xf32>) -> tensor<6x24xf32>
    %135 = "linalg.matmul"(%134, %133, %38) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg28: f32, %arg29: f32, %arg30: f32):
      %163 = "arith.mulf"(%arg28, %arg29) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %164 = "arith.addf"(%arg30, %163) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%164) : (f32) -> ()
    }) : (tensor<6x24xf32>, tensor<24x16xf32>, tensor<6x16xf32>) -> tensor<6x16xf32>
    %136 = "tensor.expand_shape"(%135) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 6, 16>}> : (tensor<6x16xf32>) -> tensor<1x6x16xf32>
    %137 = "linalg.generic"(%110, %136, %23) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg25: f32, %arg26: f32, %arg27: f32):
      %162 = "arith.addf"(%arg25, %arg26) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%162) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %138 = "linalg.generic"(%137, %137, %23) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg22: f32, %arg23: f32, %arg24: f32):
      %161 = "arith.mulf"(%arg22, %arg23) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%161) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %139 = "linalg.generic"(%138, %27) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg20: f32, %arg21: f32):
      %160 = "arith.addf"(%arg20, %arg21) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%160) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %140 = "linalg.generic"(%139, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg18: f32, %arg19: f32):
      %159 = "arith.divf"(%arg18, %22) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%159) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %141 = "linalg.generic"(%140, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg16: f32, %arg17: f32):
      %157 = "arith.truncf"(%20) : (f64) -> f32
      %158 = "arith.addf"(%arg16, %157) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%158) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %142 = "linalg.generic"(%141, %26) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg14: f32, %arg15: f32):
      %156 = "math.rsqrt"(%arg14) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%156) : (f32) -> ()
    }) : (tensor<1x6x1xf32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %143 = "linalg.generic"(%137, %142, %23) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg11: f32, %arg12: f32, %arg13: f32):
      %155 = "arith.mulf"(%arg11, %arg12) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%155) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<1x6x1xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %144 = "linalg.generic"(%143, %6, %23) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg8: f32, %arg9: f32, %arg10: f32):
      %154 = "arith.mulf"(%arg8, %arg9) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%154) : (f32) -> ()
    }) : (tensor<1x6x16xf32>, tensor<16xf32>, tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %145 = "tensor.empty"() : () -> tensor<16x32xf32>
    %146 = "linalg.transpose"(%5, %145) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg6: f32, %arg7: f32):
      "linalg.yield"(%arg6) : (f32) -> ()
    }) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
    %147 = "tensor.collapse_shape"(%144) <{reassociation = [[0, 1], [2]]}> : (tensor<1x6x16xf32>) -> tensor<6x16xf32>
    %148 = "tensor.empty"() : () -> tensor<6x32xf32>
    %149 = "linalg.fill"(%2, %148) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg4: f32, %arg5: f32):
      "linalg.yield"(%arg4) : (f32) -> ()
    }) : (f32, tensor<6x32xf32>) -> tensor<6x32xf32>
    %150 = "linalg.matmul"(%147, %146, %149) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg1: f32, %arg2: f32, %arg3: f32):
      %152 = "arith.mulf"(%arg1, %arg2) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %153 = "arith.addf"(%arg3, %152) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%153) : (f32) -> ()
    }) : (tensor<6x16xf32>, tensor<16x32xf32>, tensor<6x32xf32>) -> tensor<6x32xf32>
    %151 = "tensor.expand_shape"(%150) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 6, 32>}> : (tensor<6x32xf32>) -> tensor<1x6x32xf32>
    "func.return"(%151) : (tensor<1x6x32xf32>) -> ()
  }) : () -> ()
}) : () -> ()

{-#
  dialect_resources: {
    builtin: {
      torch_tensor_32_16_torch.float32_1: "0x04000000F48DB83DF478053E208F6C3C94D261BE74D7C6BDC0E75B3D08BF093E24EC65BE24F9FF3D0C6CE9BD6C6D08BE8CCFA13DD06A313EE84E863D7AFA78BE1E9210BE80F47B3C02C71B3E5CF1743ED6FD57BE4CDF99BD7C2CEABD201966BC68ECC5BDE8F3E63D446017BE203140BC00620ABA840947BEF80A5E3D24B317BE403E79BE9257733E904517BD8007B3BD44920E3E3442203E72D904BEACCD313E80341B3E14AFC03DE0DB063EB0939C3C7ABC5F3E74563F3EF8EAD8BD1CA168BE90071EBE983C02BD865770BE005B55BEC88549BEC067B4BDDE19513EB0571BBD84E28A3DE0C886BC0033F5BC1E9D1BBEC8F58ABDF020C43DF0C0F2BC60D79CBD16603A3EA6607FBE3065213E30B3443D5056083E5C3E40BE8C33DE3D686745BD8A6A14BE9037E7BD3A0426BEC0F7663DE840073EF053C1BC900AA2BC003FA03BC4C25F3E2813E63D4A571A3E0E25393E382B40BEEA17763E2062A33D882108BEF6344ABE00B2E8BAB8BA17BE8A2C253ED2B6763ED400B8BD649E3D3E769103BEAEF804BEB22339BE2483733E68EB713E8023B33B107E29BD6A57763E7881F6BD66E035BE78F7FD3DEC402E3E2E2933BE3EAC413E5893EEBD2AC35ABEBCAE853D3CA2A6BDC41B8C3D82F17ABE0C3194BD6CF58B3D40B378BEAC34863D403A37BD64CFC1BDB6CC703E0618623EA04803BC00CE1CBEF85C413D602746BC72A07B3E0CAF0DBE98E4253E169445BE2C5D24BE8097DFBCF8F0C43D0ADF7DBE204F8A3DDC34DC3D50CDADBD349578BE80BE5B3CF084F13D00656FBE18A8643D60B7C0BD80CA9E3BB0E0E0BD245ADF3DD08480BDAC1F58BE80F1B83CF07C25BD56A423BEC8555EBD3038043E6811BBBD0CAFCA3DD02AD6BD2A356C3E18724F3E100BEE3DC65828BE46A2353E642E093E3CF8813D98DEDA3D1EC56E3E0672253ED4B5EC3D048DCDBDA4276EBE4033A13DF4A1283E5E9B163E205E78BC3AF9403E0C1D8B3D304B7BBD2EFE5FBEBCACE0BD70EFBFBD30604B3E44416E3EE89CD7BD0089F8BD2C91E33D905A4EBD004779BC5807D7BDE061793C560C49BE3EFF743E508AB93D6E6546BEDEAC103EF4D7CEBD90F20C3E40EE31BE04637F3E3C64583E88DCB1BD1461273EC016E73BA2D94F3E74EA64BEEE2C203EE07DDD3C0E3E733E42FC09BEC016913B98F819BD768E053E7056AC3DC0BEC0BCE014F13D380996BD30E8CD3CE033A73C304D843C508BD73C80DBCDBD38CFD9BD3A2A0ABEA83ECA3D601EB7BCCAD1683ED284123E006BFBBC80B2AFBD98E079BEAA7A1CBEA0C1D83D1C93F73DC417EFBD1A953DBE8EA7573E186265BD64C7D4BD80BBCF3C74151ABE58C47CBE643A283E80C629BB38BB2FBE10307C3EB01A863CA00502BD0408C03DA0626BBD7481B8BD30E02ABD50599A3DAA750A3E90FDB43C1873F9BD3CD700BE80F3B53D20759FBDF4529B3DE0E0423E00DEF03BE45E1B3E409B813D046D733E6080543EFC78C0BD20D9323E407A97BC3E83073E00C1A03CA005E03C82B5493E30D9B23C0C5382BDE2C36CBE587CEE3DE8DB4BBE0CD3C9BDF09F5A3DDE99693E3CEC00BE586CB43D9E2A793E3C301FBE66E8493EB02BFD3D8071843DD0F4BE3DB0C4D8BD4062E3BCD448BB3D7C38A53D565D4D3EC87B53BEDA6824BE00E87D3EDEE00EBE0AB30ABE70EED13D9010AB3D2CAFD3BDEA0B033E5653103EF098113D8CC4D93DFC58863D689E893DE092943CD4CA96BDFCDAC23DC822743D4E05183E3070ADBDA01D78BE828926BE28367CBE967F203EBE1431BE0017B53C38BFC0BDAA4B413E3642673E28044ABD428E713EA25F143E5CB28EBD904DE3BC60AB9BBCC00003BEAC25013E5E5A7A3E38DEB3BD58CB303D0CC15B3E80114A3EE0DF7BBEEA95333E60888A3CE0D0F3BCB069D13CBC0751BEA21C0BBED075213D029F4D3E70CF6DBD6A96233E00FF9EBA56D772BE36F82DBE86225ABE0025E33CA02E443CF0469CBC96214DBE48A2023D8014E63C98C5D83DE0EBE5BCF80827BEB0B574BDC0D94E3C201DE6BC00CEE8BCA8B149BE3055423DB4361B3E8C08383E8C66803DA4B6883D70BFDE3DFC334F3E646D9E3D820475BE04C0883DA6C65C3E5A986F3E56C0003EA0A0693DE68379BEC06FB2BCC099AF3BC4F51CBE92E14D3E7A1C4FBEC09BF23B588645BD8E8D213E00F589BA9828CCBD605A24BDE474AE3DCADB64BE6C5FE5BDD0B341BDC0F9DABC98B7003E6458133E10DE223D04B514BEE8DD603D20AC3DBC92D42E3EAC56B03D5A840FBEE0E041BC8824593DC8D72C3E00DE41BD06D26A3E1CBB3E3EC06EC8BC187B133D448B8D3D902495BC18343F3DC62D28BE50D8F13DACBA60BE50CEA13C24D0EF3D80886ABE90D3503E70D69EBDFCD7BEBD28FD7FBEAC8CE0BD4C8114BEA43D563E804C5C3E18461FBD0021A6BD502F69BE206C213C14DEECBD408A7ABD2C5B0B3E3CF40A3EE41CE6BD8816B13D7809143E8CDDE0BDA8E02FBDA84972BDAC69933D10DD303DE845453E6031043DDE8F2A3EF6BD673EDAD2783EA2E657BE305F87BC2EE0323E2048103E6CB5AABD1E2A29BE2CD2A4BD3466893D581179BD128E63BE301193BD44BF55BE32BE463E445D773E30CD76BD840C4A3EDCE126BEAA9F09BE08DE65BD103B293EBC29253ED6FB053E06FF6A3EFEED2DBE8E3D3FBEA8BD27BE50A0F6BD8076D53DE035493CAC19CB3D4C2BC2BD8AF6093EA06AF33C149AF9BD28C8E1BD746B3ABE5AD975BE5861613E28742E3E44F9803DD42F0D3E68961E3E4600653E9C4904BE0C00CA3DC8831EBE90D2FE3C1CD03ABE403C3EBC401141BCA20527BECE0718BE7043293EDAF5003EA21612BE34644FBEFC39CA3D00AA99BC90CCD8BCC844483D94DAAB3D7C61A0BDE099E33D28D9E6BD",
      torch_tensor_16_torch.float32_2: "0x04000000FC00AF3F8FCD353FAAC4B03F4E350E3F7626903F2C32A23FA5AC633F5ED88E3F0B7D403FF5BA473F16B2353F02C6923F1274063FEAC1183F8F3A2F3F93D9253F",
      torch_tensor_16_24_torch.float32: "0x0400000005F176BDFBD9343EBB611BBE413AACBCB461BE3BEAE9973DA5BB0F3E8C880DBC2CCC373E26AE10BED8488ABA2B4C173EAE844C3EC818193DCAEFAFBBECDCF33DC7AF14BE7E4F893D6885DB3DEDDC4FBE3D81D6BDA74F673D9FD5903DDB190BBE26E7C7BB6F4D293E297984BD437E7CBD6651E3BC397925BDE31A073E3BB1163E6FA6253DBA53F3BDAEBC47BEEF7220BED83E0EBE08911BBCE9EE86BBEEFB883DD85C05BE6171043DE6C8C8BD1517DF3D7077DBBDEE57FE3C22460EBEE47DCE3D8A99EEBD49DD92BDDEF000BD00D30CBE6A313ABD14BF54BCB158923C84ABF13D9844DCBD634B163EEAC5ACBD839531BD5A9238BC2003563D314B453EE3D7173E41C2AC3CD10535BE17A64EBD41451A3E151E0CBEBBABBCBDAC66A5BDF2ECBDBDE568D23B8BAC14BEC41B37BE232C813D5734003E7ED0B5BCDF82EDBA3552453EBC30F7BD6AA19A3D116BA8BD5980103EDAF281BD7E017BBD70CF3A3E660639BC5CB74BBEB7646CBDC7286C3DD4B5323ECBFD113E0709F8BDBE380DBED82F35BDB76A0F3D9B9240BEDA7A14BD949279BD82898C3D25E62F3DA6AC29BD0FE9F63DE9E9463E0728423D8459903CA2204E3E7817023CE276993D018B1FBE8805B03D21F9343E69BC1CBE527645BE9105113EBF3045BE67249A3D2835863BABA151BC57E909BE09142D3E20D82C3E1A72253D3917353DFB2F093EB3D4113E08E7893D41781B3E72EF223C40F2F43D25E807BD4A803FBE432AF33C68DB093DB281123EFD1894BDFD85623D63554DBE12A943BE4ED8B33C0072BC3D054CDDBD0FA9253E349383BD5F30673D642213BEDFA192BC518F933D5D9B2E3E18E027BC5C18F43DC10202BED45098BD738839BE66F0FABD8A5C183E7AB3123D0C9ED1BDAE7D013E6EA54EBC6C18ACBC115108BD1A2045BEB47DA03B66B42C3D2E7504BD49D871BC506B1F3E4AE80B3E7C5CB1BDA9490E3E16605D3D981727BE6776FC3BA43426BE21A5E2BD74F91BBE297FC83D38922B3E1B6CC1BD0056023E981D06BE78C44BBE7BD140BD57B2073E2520383E2827163D690F933DBC0F79BD6189633C650DC4BD2FADE03C656D363E84EA8CBD081290BD4723463E2A8111BD7E79AD3D8EAC15BB10F6BA3D4D1DFCBC114249BE34693FBD455734BDB64A283EFF1A2FBE9A924D3EB5EC2DBEACB2C43CB5AE513D86C75E3D51F5DCBDBECD98BCE722F7BDA6A543BED4D0573D47BB863D46F40D3EB8A11DBE9F55BA3D09A4DDBD0C850DBE11981BBE735E9E3D2D4C2DBE893291BD64F71BBEBBDFD7BDC6C14FBBB88D0E3E87CB15BD4ACA1DBE8C55423B9AE516BE7F11CC3C091E23BD4A3C9C3D8F9130BD8ADF81BDD058423EA0DE2C3D26BC503E3787A6BDB25013BE17E43BBE4094F43DEB8F08BE65F02D3E306112BECD7332BE735298BD7A214F3E6618273E28BAB3BD78CF0C3EBE363E3EC64B153DBA3D10BE405F123D3EB43BBEB5C346BEC0AB4BBEB28A353EAEEDBEBDC10876BC19B6303E8BA4AF3DDE3BCF3C9D8F343E69102C3E1694AFBC94644FBE02032E3E21E01B3CF96CE1BD3B45AB3DA3F3043EAEFD633D1B22A7BD4558BBBD7FCCCD3D9242103EC9D9113EC72B17BED1B9F6BD2DF820BE473BA3BB56A790BCF0CC48BEF385703C2AE83C3E56632CBE26780C3E0CECB1BDDF79B33DEC6F053DB0172A3E5A01643D3A382EBEF31944BEDE59A43D495F9C3D5698063D5814C23D826F8CBDA21428BEB4CC09BE97C042BE1C3004BBE0B818BEE3939BBBF761333E3E8CFCBC0395F6BDBBA4ED3D7A0B0D3ED21EEE3AE76C353E64C11B3E4C4B2FBE30D6433E43913F3D8EC929BE7E8023BEA12C51BD15F900BE12367F3DBCD24B3EC0CD1DBE628C853D7F9411BE50FA043E6D0101BEEBF71ABE399239BDBF76D33D632C3D3E5B7EF5BB6E284D3EC539B13DAA0FA13D4441EE3D31C1F23C20E403BDC3B0E73A8B9433BEF118203D112C36BD5CC63CBE6CFCEA3DA98281BB2B02DB3BD9950A3D06DF1B3EDD7CE73CD72E273EB46B2DBEEAB8183E447C2BBD675D683D8747383EDBF2CDBD80A6003EA50424BE7A91B73D771D263E3B534D3ECEA3363E8D95F53D3C710D3E1B8791B96FC134BE8C2E24BE40867B3DADDC02BE8A14F63C18D731BE45A18EBDB7B6253BB045903D42BF66BDC66C80BD551006BE",
      torch_tensor_24_16_torch.float32_1: "0x04000000309C08BD0C37AC3D826A273EE09C5BBD809860BCC82A9F3DA024093E569F2BBEBEA237BED0FB96BC1AD50BBE40DEF6BBB8293D3EE0081A3E202FA73D0093363B740266BED08DB23C38DA673DBC8ADDBD9AF9163EE049733E3A7943BE20151B3EE869613E589268BDF42FB53D1ECC66BE9EC61BBE688690BD98D2103D083B623D5088EDBCC8C337BD20A242BE7895CBBD00B2C0BA4A796D3E0032EA3CE8E4523D084CCABD7058E1BD72AB63BE9C7B21BE94B7993D627214BEC853EFBDA8AA433EC800CABD343D19BECE6E2FBEA052F23C947A823D3EB7223EE025F53D004004B8AE3D413E36AF41BE8648603E8C3F17BE80EDCD3B8CA92BBE6E29603EF6B6253E9A7031BE5067C43D80A998BCCC06533EB4BF6CBE2CD0833D285A103E6A173EBE681FC33DA8C1D63D20E110BEE013683E36C323BE2A57773EE07D643C18735D3E64D4F43DE0EC3ABE9C435B3EA0331BBD001B72BB1003F03D201FFC3D3841E9BD1077BF3C8873F93D3892653EF46413BE10A340BEBA457ABE46D70F3E085247BD602DBCBC7CF4FE3D3041853C405ECE3DB8705F3E4815D9BD3E1030BE6E6C7EBE3051BEBD641C873D400A00BC509CDE3D1886053D80A4F5BB4CBE30BE20B09B3DA6E2753EF89838BD048B5FBE06BA363E181742BEE484D53D8674123E6CF801BE2C20583E74AC4CBE20626D3C425D793EBE906F3EE8C1873DC8C075BEF6BC49BEE82F213EA458D53DAA1234BEC6BF653EBEFB7FBE0A76393E60C5523C368E723EF0F8363DB0F0B23CC87B043D7457F93D1063B73C00380EBC98176D3EAAC2433EE070893CBA55643ECE705CBE62163B3E0EEE683ED24B1BBE44B19D3D241D7A3E8E0377BE304B613D10773D3EC24E65BEB87C943D600C533E2050593CE440813DE09F77BEB8437D3DD4394CBEC0F9CD3B101CDCBC283F793EB099C7BC803539BEF09C383D7C516FBEA6E70EBE0C18FF3D3C84FD3DBC7D833DB06B823C98FB233EF089743D989D74BDC8AB98BD521A353E045DE13D180D4B3EF01859BE30E91ABEC807633ED4B848BEB0DD0FBEF02F51BD142CAE3D86627F3EF4F663BE486AB2BDD81E32BD62BA5ABED84148BEA40D39BEE8581CBDFC76D4BDBC9CCB3DD0EE65BD3CD76CBE50199A3DE075C0BD00F292BAAEE65EBEE0AC053D94F98E3D207E7FBD5A77183E486AC83DC835A9BD64B71D3E18E494BDFE39393E68223B3E02FD12BE0C9A343E0CE8313E3000DE3C08431BBE14D552BE2435403EB28C01BE52A548BE0A391BBE68F365BD920340BE9E7E463E62867A3E60491ABCC8F9A1BD7049A4BC8802283D8C81473E30F5B2BD846206BED8F27FBE1AED7FBE1ADD3DBE20012D3CE0DE073D10A05E3E00E6873DB0A2D0BD869F68BEEC1E5DBEDA97643EC8C8083EEC18A0BD00C16D3E7816423E50699ABD40F696BB960B743EEC1149BE14FE1B3ED0C448BEE82569BE2A20543E86184EBEC49A31BE70F9B33CD412CDBD889771BD96D21EBE401EB4BBD27E723E7483E1BD00BF963A062D6EBEB0D152BE6C1A153E18697E3D74FAF33D2436BDBDA0723BBC962B26BEEC48F73DE02C293C62C4013EA25860BEE4BB4D3E6A671BBEDEC745BE20C325BE3CE6673E04CA72BEB0BBFFBD884B11BE6CBFF0BD7C7B713EE40F813DF23347BE9AAC393E3050583DB030843C1456ED3D3C61AA3DDAD62C3EFCD69EBD72BD02BE02FF05BEB0D5E2BC4E9005BECAB826BE305FB43D3E03763E00C2F63CF8AC19BE907544BECA7763BE207A97BC80B6483BA88519BD70AB843D2CA25FBEFC1D80BD48F23DBD508DC6BCE8C8013EBAF95BBE84B217BE3EB179BE8CCB3EBE0CD9643E28C1F23D145C59BEC8EB5CBDC85919BD802F64BCB834713D40E21CBC6095A0BCB8CD71BD58875DBD005C973ACC5E90BDA88DF9BD7871213EE8031BBD9430C3BDA2975A3E98DBDE3DD82CDC3D10C114BE40B522BD2453203E0054A93A38C41FBD6E60083E2EDF233E36822FBE6C37213EBEC24EBE04B8673EC0100A3DE02EF8BCE6712A3EF80B983DAE6664BEDE46393E62464FBED2672FBE3049B93C200C223E50F3C4BC90A3173ED6A15CBE48AA073DF81561BEC026133E587C693DE89C89BD343D783E186E8D3D2CCABCBD44D2FE3D9069453EF8A6343EACC418BE148DF0BD46D628BE8E0F3BBE041B9C3D",
      torch_tensor_24_16_torch.float32: "0x04000000EC9414BEA8AA043E2CDB8ABDD04323BDE818FE3D80DE7DBE7EC20D3E7CD4823DF4886F3E1C2C963D60525DBC60F47F3EA6A835BE6006763D70020EBEAE374C3E64E95E3E00940DBE2C302DBEF2C3473E3EB42FBED83A4D3EB8568ABD5051563E62D569BEC0D9DDBD10AB05BEE81545BE22FD6FBEF4E4913DA6BC37BE40CB1B3CA40BB7BDCC3AD63DD8B20CBE7C3A08BEC0AF4DBD5425E03DD0192EBDC0D5FB3DA00DD1BDF03440BE781C1EBDCC8FD5BD20780E3C0011C73C5045FF3DB0AB14BDBA3B483EB05115BD3A71153E64DE6DBEE6EB31BE30E19ABC8877DEBD383903BED0ECFC3DF8ED713E60D28DBC820F38BEE2401DBE7AF501BE00350ABB9055C83CB02609BD2432DD3D20D40CBC18699BBD08DA51BE2E3530BE00BA8EBB988BB03DD0DA203DC079FA3D4450D93DAE4341BE9894373E983437BDD007F63D10760E3E28C20F3E786353BDD0C9403E600108BDC832A93D4A97033E0824753EDCB400BE309C3ABD40AC28BC801480BDB0400C3D360A5ABE5891563D50F138BE1840E1BD88FD1C3EBC9B9A3DB099FD3C545357BE3275183E50ACD83C3028A43C10572F3E004E8D3CB88AC53D08403FBE7043FC3C9AF57DBEFEBB523E04FD78BEA8025CBED841E1BD1041A8BCC0F1A33B4C918BBD581EFC3D502A87BCC44E52BEE02A953D5C44423EB4B4A63D08717A3D6C61BB3DA824CD3D98BCEE3DD64F793E201AF4BC701689BCBC585FBED0CE6ABD0839553EE415B23D248809BE603B9E3D203E383C200279BD42C446BEC2BD073E84F9E23D98633DBE585E433E72D55DBE5E39253EF4ED24BE085E5FBE72B2483E52F420BE50A77A3D4800803DE81412BD3448903D2807583EC4E82DBED03B023E1EFF20BED017D9BDE0DB19BC78085A3E80AF9B3D3893A63DD45AD1BD10C7AEBD10B256BEA07D3EBCF0444B3E2473DE3D4458963DD8BD7DBDC0BE8CBCA066D4BC3CBC9ABD4078CA3C9EFD25BEA09DAF3CE8189BBD8292233E7425D73DB4D9AE3D1079ECBCFC74C3BDC43DEB3D7ED867BE00FFA53B00755EBC5C0318BEDE8874BE74A52ABE40DE69BE8AC203BE00B0EABAC00D8F3DB21B333E28859C3D00B9FC3B9CC6F1BD105789BC502F2E3EF48B643E42650F3E409D583C00081D3CA82419BE0060A13A1086983C14E9C2BD20E43EBCBE7D63BEE0F5E7BCF011F13CA41FB33D425F6D3E16B009BE5ABB18BEF431743EC038723E8482CFBD40630CBD020F5CBE42B650BE82FD7F3EE4DB0B3E1CB4473E00A1B83B466F123E9CBE943D80384D3DB096513D02347EBEE284313E00567E3CACFA02BEFA4E56BE04D7BD3D00EAC93C9CA4793E808155BDE8433BBD048BDE3D2E8D583E5C24FCBD801113BC7C8A49BE500F253D72C573BEA0AF38BEC483C13DCCDF84BD64EBE3BDC0C9023DF2C93EBE3C17183E7CBC7ABE0EA40DBE809F62BB763062BEC64537BE08D973BDFC82083E8875AD3D4450D13D62BA62BE7C8CBB3D788B26BED0DF22BE400FDB3C34D5C83D5CEA06BE9034D53CB8EAB0BD905329BE76CE113E88335ABE7058533E2CE0223E943704BE88C64ABDD09D87BC5061483DE85BD33DFC4484BD588855BD582A75BD46AD11BE106C383E5C7FF5BD4838FBBDB6692BBE80E2123B8C3EDCBDC00B33BD0ABB1F3E4052303D460F4F3E8024A7BD267760BE563449BE865051BECCDF1F3E9C55333E2484CCBD72EC4FBE9C99F9BDD807DD3D4CBEC33D247A09BEA4F899BD540888BD4E63013E9C80F9BDA2FA373E44F9943DCCB3873DCEE66CBEF28B203EA820DB3D08151A3EF613533EE03071BD1836B7BD6C55D4BDF02752BDD857443E909438BEAC39A9BDDCC5DA3D28702EBD1E072ABE4C40123E005B50BE2E9D163E54243D3E968914BEE09113BCC84F33BE24C4243E5C7267BE54B3DB3D403B0B3CC071C8BD90C7E23C9CEC76BE908FC53C88274B3D641496BD141FE2BD14D6773EFE2A3ABE201605BC0038E43AC8BF023D8CFF013E58057DBD32323EBEFE4740BE9418B83D6E34473E7CB8B1BDE815D4BD946CCABD44ABB1BD9065683E6665483EB0E1F8BCCC2AC03D467C3A3E94F157BE82381A3E2205213E1E187FBEF6D22D3EA0A0053ED8F3AABD001209BD00DD273EC09A3EBEE822153DF8DB5DBD20A0753C70DC86BD54027E3E58B712BD48CF483E8A4E303E",
      torch_tensor_16_torch.float32_1: "0x040000006CF5AE3FE7DD213FE8B53A3F0FDFB43F76E4333FD61D1F3F0476B03FC75DA23F5711BE3F330AB63FEA5A783F36D31F3F2C2C5A3F9A61883F82AC5D3FE27E6E3F",
      torch_tensor_16_16_torch.float32_1: "0x040000004858453E30CDABBCC07A6D3C80F0823C601B2B3DE0DFF23C80085E3DEAAA31BE52B70EBEACE5DE3DB01D033D76E418BE5450CDBD80A46EBE0855C1BDD016AEBCE8175F3D5091EABDE0DEA1BC708A73BD8C333BBEA02004BC74CDA4BD26B748BE02193CBEE64C113E1C9B583EDC0326BEC48B81BD18E355BDFC32CF3D88CEA8BD407E77BC185295BD7E5D0B3E805EDFBDD8843E3D00D85C3AC09CE7BBD85C5C3D7007B4BD141AA6BDD0FB64BD0078AABD36B51E3E50C41BBE583B48BE2408DEBD7A8523BE70C9B23C507D953CF06689BCD88E43BD90B855BD32021DBE648E39BE20DF2D3D2C85BEBD007C6D3D540FECBD80FCA1BCE06F693DA06C14BC3239213E8866E63D1C1DC03D008EEEBB203E433D8E9F513EB0BA3FBDE4B5A2BD7E7F543E08F8063E68BEA8BD74B9313E7E17653E006C2EBBB6B803BEB46195BDAEB628BE32B25C3E24531C3E8CA6DFBD2C808ABD68D70FBD00CE7D3A105B74BE02677DBE14700EBE2488BEBD58646ABD12CD4ABEA8A0F33D8CABB4BDB857EABDE0D437BD00D4FA3D4059333D3A822ABE989C7E3ECE7153BE26BC70BEF0B6C7BCC29F08BED418C13D405FA93CBAEE67BE80E3283BA0489A3CE485D6BD68037F3D404DE63DB0A2F43CF634553EFE9E0ABEC0436FBC584750BEF4B946BE20283A3E58797C3E80EC5DBBD2C6023EE88D14BD0A6A57BEA4C8FE3DA23102BE6CF883BD72FA3E3E4870123E107F21BD461301BE101446BD746D103E9CFC723ED81E34BDD0264B3E2C841DBE106A2F3DE81932BD48507BBEEA91373E60F2713E0CFBE23DC0A8B03D34B014BE00843EBA2820F8BD768D17BE388B63BEF67526BED82C733E5C86FA3DD0CC443E00185C3BA4FB5DBE9AC041BE4AF22DBE98A3353DC0F6553CD493443E40CF70BDD0EAF53D4A1628BE88E1D3BD9C4472BE34A4B2BDB62362BE68DB2F3D7C6AAABDAE5928BE98A7B73DD4448A3D80F6FE3D20723CBE50252D3DE08914BE98DDB23D96674FBEF48B19BED0BA6C3D3431CF3D3491413E0EFF4E3E74965E3EB833F7BD761E463E2022FABC20A05F3D98CE6A3ED08972BEE2FA2B3ED0576ABE586A48BEE0120ABD581044BE929C2DBEC0C0DE3D12722FBE465D723E9413803D0C61C13D7AA34E3EFCAC453E2CAD893DFC20B8BD686344BE6403063EB0D7ABBCB83F9DBD84C9EFBDA6A571BE904BCB3D5E6C4FBE604827BDF0766B3D9C77F4BD3ECA6B3EE890383DA4888C3D6CBAEFBDB8E2933D28E04FBD80698DBD04C38D3DE0A224BCE8C5CEBD767618BEF26642BEE853793D3EE83C3E6E8D53BEE84CC0BDDE7220BE90971E3DCC6D943D40B793BC6AEC2BBE7CAE503EE4B133BE3E135E3E56C20BBE2016933DA00171BCC4BC353E148489BDF00342BEC8EA26BDDEDD0F3EA46867BEECE547BE0EE5413EBCBC173E70B4E43DE089CD3DD45494BDC6E2373E",
      torch_tensor_6_6_torch.float32: "0x0400000000000000286B6ECE286B6ECE286B6ECE286B6ECE286B6ECE0000000000000000286B6ECE286B6ECE286B6ECE286B6ECE000000000000000000000000286B6ECE286B6ECE286B6ECE00000000000000000000000000000000286B6ECE286B6ECE0000000000000000000000000000000000000000286B6ECE000000000000000000000000000000000000000000000000",
      torch_tensor_8_16_torch.float32_1: "0x04000000E83E05BE00369CBBF0595F3D48A3093EC8B769BD50473BBE8C7024BE1C2CDFBD9C397C3E74946B3E74DBF4BDA0D08A3CBCC9F93D781F693E80D8EEBB00EC0C3B20CB7BBDD6384F3E68782DBEF0986DBD464E27BE70FAA0BCACDA4FBE101733BE40540EBEA8129B3D4AB31CBE4C07F0BD0074E8BB8CBA943DCE8478BED8CB00BE44241DBE4CE3073E24678C3D40E5ACBB90C661BED0D4F4BD2838703D808D77BE7C82A6BDEE0051BEA0754F3DE0DA883CE21E24BE0C7EA6BDA4D16D3EE0276DBEE8F32EBDAC05A0BD7ABC02BE7CFF74BE48DB70BEB498CABDB8E67DBE4008E7BC168636BE4068FA3C00BE2DBA28DD07BED8BAA83D1E5C42BE60F3143C5E6F103EEC4FA83DF0C527BE401B56BE34AA453E6427A13D941E293E00B1BA3CA857963DA8DF95BD781024BE7AA37ABE70439EBD58690DBD2030723E0410D4BDFE520DBEE495703E406A45BE4A4113BEAE455BBE704844BE424378BE6EED1FBE3EA35D3EB006733D18E85C3DD01A183E986F5DBE12293BBE6CD8F0BD6088BD3C7CCD6F3EE820293D3CB1353E98909DBD144763BE3AE17E3EEC3DAB3D8062DFBB284F353D50B12B3D4896C4BD34DDF1BD801533BD4C3ECABD942334BE1C8A883D689253BE2055BEBCF4A310BE741EA4BDDC76D8BD7017C93CC0F927BD5022793E54F56ABE26EE2BBE7CD083BD00DD793C0EDC123E90199F3C90E6BE3D80ACB63D5015A9BD",
      torch_tensor_8_16_torch.float32: "0x040000005E2A4BBE2842743E5432B8BDAC61643E0258043E94F55A3E74A44FBE08BE37BE002DBFBC241FACBD68265BBD442EDABDFE4F733E360638BE9833043D4078F33BB2C774BE147C7ABE0068983CC42045BE58C58CBDA4248DBD385E0F3D1044CA3D7C90413ECEE01ABE22DA723E9C3D76BE82023DBE181A9CBD2262073E54E889BD083A4CBE90A4CE3C0444F63D2CD2783E7C89EBBD36492E3E301A3ABED035DE3D5C5126BE8C8BB5BDD2BC643E04C7083E20BCB7BC1478D4BD4012ABBBF85B753D1473573E787850BD005ABF3A2CCFD2BDA030A1BD28BBD3BD240EC83D409CE4BDEE17603EA88D43BD248046BEC4FED13DC07BD9BD7C045DBE92970E3E246426BEC68C52BE22277CBE880E27BE0416D13D10CE52BE6842483D2ACB1A3ECE7F18BEF0CEAF3DFA6D7E3EE2B3773E0A1E33BE98AFA0BD38F2853D1019F93D08EC20BD003E4C3A805B5EBD9C1937BE744102BEB8AB173EE0EF19BE0CADB43D644C773E68D727BE0035B03AE8A16A3D8C5C753E1E4C5EBE9E5F31BE4031B93BA088713DE8B7C8BD2A681D3EB4E060BE441D72BEE6C668BE20955CBEB82A4B3E1E126C3E228121BEF091823D1E051EBEF839793DD82C6CBDA4A53DBE26DB423E742696BD484ED93DE8353C3D40688BBDA8CDE4BD48B1D6BD88FE28BEF2161F3E542A1EBE2EBF32BEE2586CBE84BA8D3DE82E783D9C130F3EE0A28ABCE2393D3EB841B6BD",
      torch_tensor_6_8_torch.float32_1: "0x040000000000000000000000000000000000000000000000000000000000000000000000A46A573F7775CC3D57D6233C6E12833AA46A573F7775CC3D57D6233C6E12833AB7C7683FF96F4B3E3ED4A33C6912033BB7C7683FF96F4B3E3ED4A33C6912033BC381103E6D4E973E1FB9F53C939B443BC381103E6D4E973E1FB9F53C939B443BCFBD41BFD861C73EDBCB233D5812833BCFBD41BFD861C73EDBCB233D5812833B107C75BF4477F53EF5B64C3DDDD6A33B107C75BF4477F53EF5B64C3DDDD6A33B",
      torch_tensor_6_8_torch.float32: "0x040000000000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F41510A3F98B87E3FB9FC7F3FF8FF7F3F41510A3F98B87E3FB9FC7F3FF8FF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F26707DBFEF90743F83E27F3FB5FF7F3F26707DBFEF90743F83E27F3FB5FF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F2C3C913E40A9603F19AE7F3F2EFF7F3F2C3C913E40A9603F19AE7F3F2EFF7F3F",
      torch_tensor_16_16_torch.float32: "0x04000000BE0A0C3E3847643DCAD83C3E965032BE8064F0BBB863B5BD908CA63DB88E1DBE7A1F3FBE9080813C18FEF7BDBCD2F43D00B51D3EE094FABD588890BDF00AB0BC00FBEBBD20730E3C88FE4EBE4899323E9CFF3F3E1486A93D1A036E3E98CB163D6E7A0EBE2E890ABEB083BBBC9AAE6E3EA0FF213D845AC23D1C80CABDE467013E80EC7A3EFAA054BE44ED6FBE4874A6BDA6240FBE748B3DBEFC79953D26D00FBEEE8B643E30B22CBDC044ECBCC67B3E3EF412C1BD326420BE30D7A13C16F50D3E7E2D04BE0EF240BED63557BEF0CA6FBE3EB83A3E386852BDBC2CA43DCC8882BD9C594B3EF4C5B63DA496013EC0B6D23C0867AF3DC4B10F3E3C1741BEA8BB603E00C5BA3B705FEE3C26CA67BE768A083E385A27BD42FA793E964003BE406F4EBEFED50EBE18DBF13D4C1C58BE646760BE22093B3E3477123E00853C3D3ED3333E4EC573BEC4ECC73D4071DA3B68B0A3BDF03F113EAEC96BBE9804653E62F01CBEE0086F3ED0BE23BD629047BE5E3B0DBE9846C43DAC60843DC813293EB4B1FA3D9085E4BD021737BEBCF1CCBDE0533DBE6876F1BD18A819BE16C151BEE0C66ABC1C0F36BE280F98BD9881A93D4C19BFBD264022BE2844A3BD10D5753DC0F456BC868D213E8A28253E8CB85B3EB429583E08BAA1BD70F7E93C24857E3E6A3843BEF09E6F3DC6B377BEC0DCF63BB0C81BBD42EA083E447563BEBAF90C3EC62E7CBE44CF91BD244D84BD604D4CBCE8EEC2BDE0DF07BE3C5CC63D5ABF7CBEB6C02E3E74BB1EBE728956BEE03A13BC688C373D86D12ABE2C4314BE00FE6ABE7061623DDCD6203ECA56093E82DE6C3EF4C1E73D54B600BEA0AE0B3EC0F0CD3D0CEC893D667A14BE78E5443E10989EBD00FCE9BB1637283EFEB140BE3E1921BEE0385BBCEECE5FBE9C1833BE209C5C3ED011D73D7AB9613E04F1EF3DE664333E407C1ABCD80562BD281DFABDB89AE33DAAF4303E00F6B7BAA04BC23C7CECB6BD10FACCBD48FFF33DACA634BE689FE0BDBCD316BEF8C7DE3D2CB11CBE708F46BD362D24BEAC78E93D02F52CBE904F65BE68C87CBEF2306ABE3890AABD4483F1BD20ECAEBC8C76EBBDCC46F83D224840BEA077C8BD4846483EE0CB2D3D1E2C0D3E0084BEBC88590D3D10E67BBE00343E3D22A518BEF42720BECC5934BEF87349BE00202A381802153E1EAD77BE842CF4BD04E3CEBDCEA2153E384F1BBEC488043E0C73BBBDBCDD683EB6DD6A3E2C51E33DC8E38D3D842A61BECC68AA3D0488773E005970BD3041A23C220008BEE44DF9BD685D63BE7C8614BE906C2DBE00A115BC009F1ABE728A1E3ED632563EC2FC6ABECCD1913DA8F2E7BD94BA5F3EB6C000BE007CEFBC6623563E1833093E0CB07EBE8A7656BE9C21D5BD9CFA8B3DBE303CBEFCEE113E30611F3E02B933BE1CDAFE3D78AF01BE8826463D8A49753E1465EA3DDEC1453E",
      torch_tensor_16_torch.float32: "0x040000003BB7BF3F2504223F71BB4A3F19FDA43FD8942D3F0DC62C3FA2C3603FA5271D3FE82D4E3FAA5E6C3F368BAB3F7A68603F44E9563F75599D3F068C843FF803283F",
      torch_tensor_32_16_torch.float32: "0x0400000077D1EB3FCAD5043F3D20DBBFCCC6D9BF2B3E0140D58789BECFDA05BE2DFDB7BFC612C83E47629BBCDC24ADBFE0163BBF79E87C3FA3BCD6BEBCBB15BF1D4748BF47E93140536B9C3F1743ACBE2F0E77BF4BC604BE500D1ABF817A143E4B6C19BEAFF2DFBEDD7B473F5CF56EBDA2F301C0BAD0BD3F8FF2FC3E35337F3EBA9EDF3F65F985BED37D3BBF9759D93F307737BED426F63F286E933EE5D16F3FF7CC19C06B7117BE678E653F93520C3FA4CED1BFEB5BE8BF729653BEBDA406BF504FD9BF4719513F95BCD13EA36C5D3EDA7E8B3F072E313EFFC42A3E329191BF252252BF0C78E5BF688F603FFF800A408BFC3DBEDC9A7D3F561A3E3FA895A23FE34EA93F22A304BF6019C83F522D9E3FED83BF3F0F3DF23E86651B3FC3BF60BF821A3EBF7DFA903EB2C2BFBF5D469EBE38A61ABFA2CEFBBFA9090CBE6F67EF3F581C1A3E23CE50BF458AC4BEF5DACD3E0E87B7BF2DA494BD7F0B0CBFD8C3F93EFBE526BF7E79BABEF311863F8B607F3F683D6D3F556CF63F334A42BDFBC4043F61E1263FDC1355BFEB023EBE213A9E3F232EB8BF190E64BF73FC84BEF6956DBE7DCCE33EF5ED823E25D3853F1372DB3FE00C9ABF7DF93ABEAC6E073E9FD7003F86FA63BE9714E5BD923B57BE75E06D3F99DB3FBFD032353D204B803F8A42C0BF7218A9BFB72620BEB6A9913F6656AABF0095E73FDB5BBA3E323D9ABEA529D3BFE6BCEA3CBBDFC53E2D3D783FF09D423E0E443D3E353F623F491BA93FF9D906BEF38FBCBF8DCED8BEB9DC5B3E2AC4EABED083113FDCBB143F93FA87BE0352D43E36682140D79B9BBF7CFA8BBC321EFABE4E14743F89AB63BF571B3D3FB25E06BFC7A650BD13ECD5BEF99BDFBF5760923FC18D0E3D8903613F58789A3D01B9073E496DB4BF0CA3F33E95D8C43F8F0E453FD8C7C93F00E2B6BFF67B97BF635FA33F8EF8563FD2F194BF54415ABFC89A8C3F377315BE047DFEBFC80C0E3FF14AB23EDA37DE3A6117EABE21E6B5BEA9C0FFBE1CD7BA3E6EB5773D9318A13D8F2408BF3AA0CFBE15AC083EEDB257BECD8BADBEE2825CBF2487D5BE5DF0CF3E92D6713F4D6FEFBC68CA433F49ABD1BF4BCCC33E373231BFB472063F8E71BFBF2F71893D0A67563E4A020840AAE235BE9EB4173FA9EC53BF583F9DBFF844523D4DAE5DBFBC1093BE0265BC3FCA14D83DF5A9D93F7AA3B0BF416380BD174CA0BE2283113FF5DEE13F98608FBF9323453E9512E63FCBBB9EBE01038D3D2198AEBFF22FFE3D6A6CEEBFD90C7FBFA8D16D3E1AA20D3F4573F4BE0C9EC33FF9B636409B7498BED8E5843E233B43BF5BEE95BF787F9C3E1231913FE761933FDB503EBFCCF50B3F366149BFD30452BF3D5C993F240BCFBD739AC03F99611EBF6E04D5BF3503AABEA5CE763F70A4C1BF909AC23E1D35AC3F15A88D3FEDFE5F3F6294AA3E19AA81BFE2EE323FDC9D473EC137C53F140C29BF4BEA403F2ABDF43D2135633F1B62083FDF4123BE481CBA3EC56F96BF84005ABFDB4B313C19677A3FAE6F57BF06DF8CBD3668EBBD54EBD3BF4016ABBE66C6CEBF8D35D23E26BF763F820CA83EEACD773DED8C98BFC6E104BFA7A6A3BF46DD383FF1C07F3E038E68BF1DC4C23D3635E83DEC2DF4BF44C922BFCF419DBF11D4D73DAACD89BE721316BF41018EBE8C008ABFD5BAD33EA189173F16F1353FFD3E86BE6733C03F85D42BBE0E12DB3FFF39F1BDC4822BBEAE16C73F5DE6A0BF64DA08BEEECDE43D7533F0BFF1F5ABBFCA8303C039A527BF13919BBEF79F093F3886893E638FE2BF2BD80640FEF0D13E269C5A3F0E20BA3F9E289B3FFEDE7E3EC7731E3F0AF8CA3FB0FAFE3D40D93A3FE0771840940526BF7B26123F1FF37ABFFC2656BD5FEFFABF7135393EC4FC723DCE144F3F85C7883D2598A33F07F2153FC2FAB03F71B2313FE6DD96BF7E348E3EB3CC4FBF1B1D8EBE01890CBF4E1B80BFC1DDA6BE2249D1BEBCD026BD3E051BC088CECEBEBC51E0BEB46E79BF00C2763FA3C643BE074F893F210ACD3F33C77A3FACE985BF02780BBF71393C3FF885B83FA9D0693FB5AA673E25A225BF99D9953F881CEF3F5F474EBFD676FFBF5630E33E7F190FC0AA538DBFF4CE453FDDA4CDBD89174DBF52A532BFD30BA93E0D52E1BF427D5C3F11A68BBE8B24973E8CE2B0BD33F589BF20A1A83F95FE843E653168BEB834893F11FE0C3E5ACEAF3F24D9633FEA93AA3B4627833F1705B8BF4528DB3C11BBE13FA347693E81EDA1BF309C8D3E4A8D0F3E04BA8A3E16CB4F3D71F3DF3F43C5C43E6560D6BE75FE1CBF0AAC4EBEF73867BFA2D2123EB6E03F3E8F7CF4BFEF343B3F30B68CBFCBF84F3FEA22C4BE8DA4203FE816CABE33A907C0DBB0D63FC71E903E74DB30BFDF0FCEBF1C37FCBECF946F3E836ADE3F9093823F233ED5BF451E02C02037063F10F54F3F21CE943E1C37C23D59BCC9BF113CBDBE80D46B3FD8B0A83FF76E933E784E2C3F1AED09403992913E62EAA4BE89E816BF85F19BBF79E61340BE37AEBED5CE82BD32ACBEBE682D89BF1C518DBDB66394BF5C1451BFB4CA9D3EEAD4813E1254CE3F98D75DBEE40E2EBF19ED3A3F836882BF89F9BDBEE004A33F6177383F1F06923F64765E3F67E5553EE30044BFF84E1EBF00DDCABEBF84FE3E638C473F2B91F43DA5635B3CBE7D7D3DB8D9E83DA1C2E0BE89058CBFB196113F61E2843D4649343F1E2CDD3D40BF233F95DA87BF0BBFB03F4C4C8ABF0D7A89BEC13B1F3F0A108B3FF338C43E160804BE7D7C7E3E3876DF3CAD37D9BE4E78FA3E3FF5D53D11D700409B3210BE0077933F88887FBE7DD206C0D5442D3F4FA49BBEE5350B40228FDA3DDEA1F83ECFC626C02FD45EBEB614DFBF03DF79BD151D833F7AE9E23D32ED683F69A0B73F2B1B92BF13FBABBD"
    }
  }
#-}
