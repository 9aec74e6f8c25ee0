#map = affine_map<(d0, d1, d2) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#map3 = affine_map<(d0, d1, d2) -> (d2)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map11 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1x5xi64>) -> tensor<1x5x24xf32>, sym_name = "forward"}> ({
  ^bb0(%arg0: tensor<1x5xi64>):
    %0 = "arith.constant"() <{value = 0 : i64}> : () -> i64
    %1 = "arith.constant"() <{value = 24 : index}> : () -> index
    %2 = "arith.constant"() <{value = 0.000000e+00 : f32}> : () -> f32
    %3 = "arith.constant"() <{value = 0xFF800000 : f32}> : () -> f32
    %4 = "arith.constant"() <{value = 1.000000e+00 : f32}> : () -> f32
    %5 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_4> : tensor<16xf32>}> : () -> tensor<16xf32>
    %6 = "arith.constant"() <{value = dense_resource<torch_tensor_16_8_torch.float32_1> : tensor<16x8xf32>}> : () -> tensor<16x8xf32>
    %7 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32_3> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %8 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32_2> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %9 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_3> : tensor<16xf32>}> : () -> tensor<16xf32>
    %10 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_7> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %11 = "arith.constant"() <{value = dense_resource<torch_tensor_5_5_torch.float32_1> : tensor<5x5xf32>}> : () -> tensor<5x5xf32>
    %12 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_6> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %13 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_5> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %14 = "arith.constant"() <{value = dense_resource<torch_tensor_5_8_torch.float32_3> : tensor<5x8xf32>}> : () -> tensor<5x8xf32>
    %15 = "arith.constant"() <{value = dense_resource<torch_tensor_5_8_torch.float32_2> : tensor<5x8xf32>}> : () -> tensor<5x8xf32>
    %16 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_4> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %17 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_2> : tensor<16xf32>}> : () -> tensor<16xf32>
    %18 = "arith.constant"() <{value = dense_resource<torch_tensor_16_8_torch.float32> : tensor<16x8xf32>}> : () -> tensor<16x8xf32>
    %19 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32_1> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %20 = "arith.constant"() <{value = dense_resource<torch_tensor_8_16_torch.float32> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
    %21 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32_1> : tensor<16xf32>}> : () -> tensor<16xf32>
    %22 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_3> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %23 = "arith.constant"() <{value = dense_resource<torch_tensor_5_5_torch.float32> : tensor<5x5xf32>}> : () -> tensor<5x5xf32>
    %24 = "arith.constant"() <{value = 2.8284271247461903 : f64}> : () -> f64
    %25 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_2> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %26 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32_1> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %27 = "arith.constant"() <{value = dense_resource<torch_tensor_5_8_torch.float32_1> : tensor<5x8xf32>}> : () -> tensor<5x8xf32>
    %28 = "arith.constant"() <{value = dense_resource<torch_tensor_5_8_torch.float32> : tensor<5x8xf32>}> : () -> tensor<5x8xf32>
    %29 = "arith.constant"() <{value = dense_resource<torch_tensor_16_16_torch.float32> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %30 = "arith.constant"() <{value = dense_resource<torch_tensor_16_torch.float32> : tensor<16xf32>}> : () -> tensor<16xf32>
    %31 = "arith.constant"() <{value = 1.000000e-05 : f64}> : () -> f64
    %32 = "arith.constant"() <{value = dense_resource<torch_tensor_24_16_torch.float32> : tensor<24x16xf32>}> : () -> tensor<24x16xf32>
    %33 = "arith.constant"() <{value = 1.600000e+01 : f32}> : () -> f32
    %34 = "tensor.empty"() : () -> tensor<1x5x16xf32>
    %35 = "linalg.generic"(%arg0, %34) <{indexing_maps = [#map, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg319: i64, %arg320: f32):
      %367 = "arith.index_cast"(%arg319) : (i64) -> index
      %368 = "linalg.index"() <{dim = 2 : i64}> : () -> index
      %369 = "arith.cmpi"(%367, %1) <{predicate = 2 : i64}> : (index, index) -> i1
      "cf.assert"(%369) <{msg = "index must be smaller than dim size"}> : (i1) -> ()
      %370 = "arith.cmpi"(%arg319, %0) <{predicate = 5 : i64}> : (i64, i64) -> i1
      "cf.assert"(%370) <{msg = "index must be larger or equal to 0"}> : (i1) -> ()
      %371 = "tensor.extract"(%32, %367, %368) : (tensor<24x16xf32>, index, index) -> f32
      "linalg.yield"(%371) : (f32) -> ()
    }) : (tensor<1x5xi64>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %36 = "linalg.generic"(%35, %35, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg316: f32, %arg317: f32, %arg318: f32):
      %366 = "arith.mulf"(%arg316, %arg317) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%366) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %37 = "tensor.empty"() : () -> tensor<1x5x1xf32>
    %38 = "linalg.fill"(%2, %37) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg314: f32, %arg315: f32):
      "linalg.yield"(%arg314) : (f32) -> ()
    }) : (f32, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %39 = "linalg.generic"(%36, %38) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg312: f32, %arg313: f32):
      %365 = "arith.addf"(%arg312, %arg313) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%365) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %40 = "linalg.generic"(%39, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg310: f32, %arg311: f32):
      %364 = "arith.divf"(%arg310, %33) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%364) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %41 = "linalg.generic"(%40, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg308: f32, %arg309: f32):
      %362 = "arith.truncf"(%31) : (f64) -> f32
      %363 = "arith.addf"(%arg308, %362) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%363) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %42 = "linalg.generic"(%41, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg306: f32, %arg307: f32):
      %361 = "math.rsqrt"(%arg306) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%361) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %43 = "linalg.generic"(%35, %42, %34) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg303: f32, %arg304: f32, %arg305: f32):
      %360 = "arith.mulf"(%arg303, %arg304) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%360) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %44 = "linalg.generic"(%43, %30, %34) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg300: f32, %arg301: f32, %arg302: f32):
      %359 = "arith.mulf"(%arg300, %arg301) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%359) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %45 = "tensor.empty"() : () -> tensor<16x16xf32>
    %46 = "linalg.transpose"(%29, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg298: f32, %arg299: f32):
      "linalg.yield"(%arg298) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %47 = "tensor.collapse_shape"(%44) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x16xf32>) -> tensor<5x16xf32>
    %48 = "tensor.empty"() : () -> tensor<5x16xf32>
    %49 = "linalg.fill"(%2, %48) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg296: f32, %arg297: f32):
      "linalg.yield"(%arg296) : (f32) -> ()
    }) : (f32, tensor<5x16xf32>) -> tensor<5x16xf32>
    %50 = "linalg.matmul"(%47, %46, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg293: f32, %arg294: f32, %arg295: f32):
      %357 = "arith.mulf"(%arg293, %arg294) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %358 = "arith.addf"(%arg295, %357) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%358) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %51 = "tensor.expand_shape"(%50) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %52 = "tensor.empty"() : () -> tensor<1x2x5x8xf32>
    %53 = "linalg.transpose"(%51, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg291: f32, %arg292: f32):
      "linalg.yield"(%arg291) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %54 = "tensor.extract_slice"(%53) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %55 = "tensor.extract_slice"(%53) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %56 = "linalg.generic"(%53, %28, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg288: f32, %arg289: f32, %arg290: f32):
      %356 = "arith.mulf"(%arg288, %arg289) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%356) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %57 = "tensor.empty"() : () -> tensor<1x2x5x4xf32>
    %58 = "linalg.generic"(%55, %57) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg286: f32, %arg287: f32):
      %355 = "arith.negf"(%arg286) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%355) : (f32) -> ()
    }) : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %59 = "tensor.concat"(%58, %54) <{dim = 3 : i64}> : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x8xf32>
    %60 = "linalg.generic"(%59, %27, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg283: f32, %arg284: f32, %arg285: f32):
      %354 = "arith.mulf"(%arg283, %arg284) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%354) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %61 = "linalg.generic"(%56, %60, %52) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg280: f32, %arg281: f32, %arg282: f32):
      %353 = "arith.addf"(%arg280, %arg281) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%353) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %62 = "linalg.transpose"(%26, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg278: f32, %arg279: f32):
      "linalg.yield"(%arg278) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %63 = "linalg.matmul"(%47, %62, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg275: f32, %arg276: f32, %arg277: f32):
      %351 = "arith.mulf"(%arg275, %arg276) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %352 = "arith.addf"(%arg277, %351) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%352) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %64 = "tensor.expand_shape"(%63) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %65 = "linalg.transpose"(%64, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg273: f32, %arg274: f32):
      "linalg.yield"(%arg273) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %66 = "tensor.extract_slice"(%65) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %67 = "tensor.extract_slice"(%65) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %68 = "linalg.generic"(%65, %28, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg270: f32, %arg271: f32, %arg272: f32):
      %350 = "arith.mulf"(%arg270, %arg271) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%350) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %69 = "linalg.generic"(%67, %57) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg268: f32, %arg269: f32):
      %349 = "arith.negf"(%arg268) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%349) : (f32) -> ()
    }) : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %70 = "tensor.concat"(%69, %66) <{dim = 3 : i64}> : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x8xf32>
    %71 = "linalg.generic"(%70, %27, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg265: f32, %arg266: f32, %arg267: f32):
      %348 = "arith.mulf"(%arg265, %arg266) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%348) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %72 = "linalg.generic"(%68, %71, %52) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg262: f32, %arg263: f32, %arg264: f32):
      %347 = "arith.addf"(%arg262, %arg263) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%347) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %73 = "linalg.transpose"(%25, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg260: f32, %arg261: f32):
      "linalg.yield"(%arg260) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %74 = "linalg.matmul"(%47, %73, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg257: f32, %arg258: f32, %arg259: f32):
      %345 = "arith.mulf"(%arg257, %arg258) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %346 = "arith.addf"(%arg259, %345) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%346) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %75 = "tensor.expand_shape"(%74) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %76 = "linalg.transpose"(%75, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg255: f32, %arg256: f32):
      "linalg.yield"(%arg255) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %77 = "tensor.empty"() : () -> tensor<1x2x8x5xf32>
    %78 = "linalg.transpose"(%72, %77) <{permutation = array<i64: 0, 1, 3, 2>}> ({
    ^bb0(%arg253: f32, %arg254: f32):
      "linalg.yield"(%arg253) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x8x5xf32>) -> tensor<1x2x8x5xf32>
    %79 = "tensor.collapse_shape"(%61) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x8xf32>) -> tensor<2x5x8xf32>
    %80 = "tensor.collapse_shape"(%78) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x8x5xf32>) -> tensor<2x8x5xf32>
    %81 = "tensor.empty"() : () -> tensor<2x5x5xf32>
    %82 = "linalg.fill"(%2, %81) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg251: f32, %arg252: f32):
      "linalg.yield"(%arg251) : (f32) -> ()
    }) : (f32, tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
    %83 = "linalg.batch_matmul"(%79, %80, %82) <{indexing_maps = [#map8, #map9, #map10], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg248: f32, %arg249: f32, %arg250: f32):
      %343 = "arith.mulf"(%arg248, %arg249) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %344 = "arith.addf"(%arg250, %343) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%344) : (f32) -> ()
    }) : (tensor<2x5x8xf32>, tensor<2x8x5xf32>, tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
    %84 = "tensor.expand_shape"(%83) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 5, 5>}> : (tensor<2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %85 = "tensor.empty"() : () -> tensor<1x2x5x5xf32>
    %86 = "linalg.generic"(%84, %85) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg246: f32, %arg247: f32):
      %341 = "arith.truncf"(%24) : (f64) -> f32
      %342 = "arith.divf"(%arg246, %341) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%342) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %87 = "linalg.generic"(%86, %23, %85) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg243: f32, %arg244: f32, %arg245: f32):
      %340 = "arith.addf"(%arg243, %arg244) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%340) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %88 = "tensor.empty"() : () -> tensor<1x2x5xi64>
    %89 = "linalg.fill"(%0, %88) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg241: i64, %arg242: i64):
      "linalg.yield"(%arg241) : (i64) -> ()
    }) : (i64, tensor<1x2x5xi64>) -> tensor<1x2x5xi64>
    %90 = "tensor.empty"() : () -> tensor<1x2x5xf32>
    %91 = "linalg.fill"(%3, %90) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg239: f32, %arg240: f32):
      "linalg.yield"(%arg239) : (f32) -> ()
    }) : (f32, tensor<1x2x5xf32>) -> tensor<1x2x5xf32>
    %92:2 = "linalg.generic"(%87, %91, %89) <{indexing_maps = [#map6, #map10, #map10], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 2>}> ({
    ^bb0(%arg236: f32, %arg237: f32, %arg238: i64):
      %335 = "linalg.index"() <{dim = 3 : i64}> : () -> index
      %336 = "arith.index_cast"(%335) : (index) -> i64
      %337 = "arith.maximumf"(%arg236, %arg237) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %338 = "arith.cmpf"(%arg236, %arg237) <{fastmath = #arith.fastmath<none>, predicate = 2 : i64}> : (f32, f32) -> i1
      %339 = "arith.select"(%338, %336, %arg238) : (i1, i64, i64) -> i64
      "linalg.yield"(%337, %339) : (f32, i64) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5xf32>, tensor<1x2x5xi64>) -> (tensor<1x2x5xf32>, tensor<1x2x5xi64>)
    %93 = "tensor.expand_shape"(%92#0) <{reassociation = [[0], [1], [2, 3]], static_output_shape = array<i64: 1, 2, 5, 1>}> : (tensor<1x2x5xf32>) -> tensor<1x2x5x1xf32>
    %94 = "linalg.generic"(%87, %93, %85) <{indexing_maps = [#map6, #map11, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg233: f32, %arg234: f32, %arg235: f32):
      %334 = "arith.subf"(%arg233, %arg234) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%334) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %95 = "linalg.generic"(%94, %85) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg231: f32, %arg232: f32):
      %333 = "math.exp"(%arg231) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%333) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %96 = "tensor.empty"() : () -> tensor<1x2x5x1xf32>
    %97 = "linalg.fill"(%2, %96) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg229: f32, %arg230: f32):
      "linalg.yield"(%arg229) : (f32) -> ()
    }) : (f32, tensor<1x2x5x1xf32>) -> tensor<1x2x5x1xf32>
    %98 = "linalg.generic"(%95, %97) <{indexing_maps = [#map6, #map11], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg227: f32, %arg228: f32):
      %332 = "arith.addf"(%arg227, %arg228) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%332) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>) -> tensor<1x2x5x1xf32>
    %99 = "linalg.generic"(%95, %98, %85) <{indexing_maps = [#map6, #map11, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg224: f32, %arg225: f32, %arg226: f32):
      %331 = "arith.divf"(%arg224, %arg225) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%331) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %100 = "tensor.collapse_shape"(%99) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x5xf32>) -> tensor<2x5x5xf32>
    %101 = "tensor.collapse_shape"(%76) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x8xf32>) -> tensor<2x5x8xf32>
    %102 = "tensor.empty"() : () -> tensor<2x5x8xf32>
    %103 = "linalg.fill"(%2, %102) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg222: f32, %arg223: f32):
      "linalg.yield"(%arg222) : (f32) -> ()
    }) : (f32, tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
    %104 = "linalg.batch_matmul"(%100, %101, %103) <{indexing_maps = [#map8, #map9, #map10], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg219: f32, %arg220: f32, %arg221: f32):
      %329 = "arith.mulf"(%arg219, %arg220) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %330 = "arith.addf"(%arg221, %329) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%330) : (f32) -> ()
    }) : (tensor<2x5x5xf32>, tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
    %105 = "tensor.expand_shape"(%104) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 5, 8>}> : (tensor<2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %106 = "tensor.empty"() : () -> tensor<1x5x2x8xf32>
    %107 = "linalg.transpose"(%105, %106) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg217: f32, %arg218: f32):
      "linalg.yield"(%arg217) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32>
    %108 = "linalg.transpose"(%22, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg215: f32, %arg216: f32):
      "linalg.yield"(%arg215) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %109 = "tensor.collapse_shape"(%107) <{reassociation = [[0, 1], [2, 3]]}> : (tensor<1x5x2x8xf32>) -> tensor<5x16xf32>
    %110 = "linalg.matmul"(%109, %108, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg212: f32, %arg213: f32, %arg214: f32):
      %327 = "arith.mulf"(%arg212, %arg213) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %328 = "arith.addf"(%arg214, %327) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%328) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %111 = "tensor.expand_shape"(%110) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 16>}> : (tensor<5x16xf32>) -> tensor<1x5x16xf32>
    %112 = "linalg.generic"(%35, %111, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg209: f32, %arg210: f32, %arg211: f32):
      %326 = "arith.addf"(%arg209, %arg210) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%326) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %113 = "linalg.generic"(%112, %112, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg206: f32, %arg207: f32, %arg208: f32):
      %325 = "arith.mulf"(%arg206, %arg207) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%325) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %114 = "linalg.generic"(%113, %38) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg204: f32, %arg205: f32):
      %324 = "arith.addf"(%arg204, %arg205) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%324) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %115 = "linalg.generic"(%114, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg202: f32, %arg203: f32):
      %323 = "arith.divf"(%arg202, %33) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%323) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %116 = "linalg.generic"(%115, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg200: f32, %arg201: f32):
      %321 = "arith.truncf"(%31) : (f64) -> f32
      %322 = "arith.addf"(%arg200, %321) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%322) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %117 = "linalg.generic"(%116, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg198: f32, %arg199: f32):
      %320 = "math.rsqrt"(%arg198) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%320) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %118 = "linalg.generic"(%112, %117, %34) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg195: f32, %arg196: f32, %arg197: f32):
      %319 = "arith.mulf"(%arg195, %arg196) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%319) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %119 = "linalg.generic"(%118, %21, %34) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg192: f32, %arg193: f32, %arg194: f32):
      %318 = "arith.mulf"(%arg192, %arg193) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%318) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %120 = "tensor.empty"() : () -> tensor<16x8xf32>
    %121 = "linalg.transpose"(%20, %120) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg190: f32, %arg191: f32):
      "linalg.yield"(%arg190) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %122 = "tensor.collapse_shape"(%119) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x16xf32>) -> tensor<5x16xf32>
    %123 = "tensor.empty"() : () -> tensor<5x8xf32>
    %124 = "linalg.fill"(%2, %123) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg188: f32, %arg189: f32):
      "linalg.yield"(%arg188) : (f32) -> ()
    }) : (f32, tensor<5x8xf32>) -> tensor<5x8xf32>
    %125 = "linalg.matmul"(%122, %121, %124) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg185: f32, %arg186: f32, %arg187: f32):
      %316 = "arith.mulf"(%arg185, %arg186) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %317 = "arith.addf"(%arg187, %316) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%317) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
    %126 = "tensor.expand_shape"(%125) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 8>}> : (tensor<5x8xf32>) -> tensor<1x5x8xf32>
    %127 = "tensor.empty"() : () -> tensor<1x5x8xf32>
    %128 = "linalg.generic"(%126, %127) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg183: f32, %arg184: f32):
      %312 = "arith.negf"(%arg183) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %313 = "math.exp"(%312) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %314 = "arith.addf"(%313, %4) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %315 = "arith.divf"(%4, %314) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%315) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %129 = "linalg.generic"(%126, %128, %127) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg180: f32, %arg181: f32, %arg182: f32):
      %311 = "arith.mulf"(%arg180, %arg181) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%311) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %130 = "linalg.transpose"(%19, %120) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg178: f32, %arg179: f32):
      "linalg.yield"(%arg178) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %131 = "linalg.matmul"(%122, %130, %124) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg175: f32, %arg176: f32, %arg177: f32):
      %309 = "arith.mulf"(%arg175, %arg176) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %310 = "arith.addf"(%arg177, %309) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%310) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
    %132 = "tensor.expand_shape"(%131) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 8>}> : (tensor<5x8xf32>) -> tensor<1x5x8xf32>
    %133 = "linalg.generic"(%129, %132, %127) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg172: f32, %arg173: f32, %arg174: f32):
      %308 = "arith.mulf"(%arg172, %arg173) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%308) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %134 = "tensor.empty"() : () -> tensor<8x16xf32>
    %135 = "linalg.transpose"(%18, %134) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg170: f32, %arg171: f32):
      "linalg.yield"(%arg170) : (f32) -> ()
    }) : (tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    %136 = "tensor.collapse_shape"(%133) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x8xf32>) -> tensor<5x8xf32>
    %137 = "linalg.matmul"(%136, %135, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg167: f32, %arg168: f32, %arg169: f32):
      %306 = "arith.mulf"(%arg167, %arg168) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %307 = "arith.addf"(%arg169, %306) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%307) : (f32) -> ()
    }) : (tensor<5x8xf32>, tensor<8x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %138 = "tensor.expand_shape"(%137) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 16>}> : (tensor<5x16xf32>) -> tensor<1x5x16xf32>
    %139 = "linalg.generic"(%112, %138, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg164: f32, %arg165: f32, %arg166: f32):
      %305 = "arith.addf"(%arg164, %arg165) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%305) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %140 = "linalg.generic"(%139, %139, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg161: f32, %arg162: f32, %arg163: f32):
      %304 = "arith.mulf"(%arg161, %arg162) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%304) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %141 = "linalg.generic"(%140, %38) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg159: f32, %arg160: f32):
      %303 = "arith.addf"(%arg159, %arg160) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%303) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %142 = "linalg.generic"(%141, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg157: f32, %arg158: f32):
      %302 = "arith.divf"(%arg157, %33) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%302) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %143 = "linalg.generic"(%142, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg155: f32, %arg156: f32):
      %300 = "arith.truncf"(%31) : (f64) -> f32
      %301 = "arith.addf"(%arg155, %300) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%301) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %144 = "linalg.generic"(%143, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg153: f32, %arg154: f32):
      %299 = "math.rsqrt"(%arg153) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%299) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %145 = "linalg.generic"(%139, %144, %34) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg150: f32, %arg151: f32, %arg152: f32):
      %298 = "arith.mulf"(%arg150, %arg151) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%298) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %146 = "linalg.generic"(%145, %17, %34) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg147: f32, %arg148: f32, %arg149: f32):
      %297 = "arith.mulf"(%arg147, %arg148) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%297) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %147 = "linalg.transpose"(%16, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg145: f32, %arg146: f32):
      "linalg.yield"(%arg145) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %148 = "tensor.collapse_shape"(%146) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x16xf32>) -> tensor<5x16xf32>
    %149 = "linalg.matmul"(%148, %147, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg142: f32, %arg143: f32, %arg144: f32):
      %295 = "arith.mulf"(%arg142, %arg143) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %296 = "arith.addf"(%arg144, %295) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%296) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %150 = "tensor.expand_shape"(%149) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %151 = "linalg.transpose"(%150, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg140: f32, %arg141: f32):
      "linalg.yield"(%arg140) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %152 = "tensor.extract_slice"(%151) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %153 = "tensor.extract_slice"(%151) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %154 = "linalg.generic"(%151, %15, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg137: f32, %arg138: f32, %arg139: f32):
      %294 = "arith.mulf"(%arg137, %arg138) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%294) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %155 = "linalg.generic"(%153, %57) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg135: f32, %arg136: f32):
      %293 = "arith.negf"(%arg135) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%293) : (f32) -> ()
    }) : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %156 = "tensor.concat"(%155, %152) <{dim = 3 : i64}> : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x8xf32>
    %157 = "linalg.generic"(%156, %14, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg132: f32, %arg133: f32, %arg134: f32):
      %292 = "arith.mulf"(%arg132, %arg133) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%292) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %158 = "linalg.generic"(%154, %157, %52) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg129: f32, %arg130: f32, %arg131: f32):
      %291 = "arith.addf"(%arg129, %arg130) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%291) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %159 = "linalg.transpose"(%13, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg127: f32, %arg128: f32):
      "linalg.yield"(%arg127) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %160 = "linalg.matmul"(%148, %159, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg124: f32, %arg125: f32, %arg126: f32):
      %289 = "arith.mulf"(%arg124, %arg125) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %290 = "arith.addf"(%arg126, %289) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%290) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %161 = "tensor.expand_shape"(%160) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %162 = "linalg.transpose"(%161, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg122: f32, %arg123: f32):
      "linalg.yield"(%arg122) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %163 = "tensor.extract_slice"(%162) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %164 = "tensor.extract_slice"(%162) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0, 0, 4>, static_sizes = array<i64: 1, 2, 5, 4>, static_strides = array<i64: 1, 1, 1, 1>}> : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x4xf32>
    %165 = "linalg.generic"(%162, %15, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg119: f32, %arg120: f32, %arg121: f32):
      %288 = "arith.mulf"(%arg119, %arg120) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%288) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %166 = "linalg.generic"(%164, %57) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg117: f32, %arg118: f32):
      %287 = "arith.negf"(%arg117) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%287) : (f32) -> ()
    }) : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %167 = "tensor.concat"(%166, %163) <{dim = 3 : i64}> : (tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x5x8xf32>
    %168 = "linalg.generic"(%167, %14, %52) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg114: f32, %arg115: f32, %arg116: f32):
      %286 = "arith.mulf"(%arg114, %arg115) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%286) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %169 = "linalg.generic"(%165, %168, %52) <{indexing_maps = [#map6, #map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg111: f32, %arg112: f32, %arg113: f32):
      %285 = "arith.addf"(%arg111, %arg112) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%285) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %170 = "linalg.transpose"(%12, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg109: f32, %arg110: f32):
      "linalg.yield"(%arg109) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %171 = "linalg.matmul"(%148, %170, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg106: f32, %arg107: f32, %arg108: f32):
      %283 = "arith.mulf"(%arg106, %arg107) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %284 = "arith.addf"(%arg108, %283) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%284) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %172 = "tensor.expand_shape"(%171) <{reassociation = [[0, 1], [2, 3]], static_output_shape = array<i64: 1, 5, 2, 8>}> : (tensor<5x16xf32>) -> tensor<1x5x2x8xf32>
    %173 = "linalg.transpose"(%172, %52) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg104: f32, %arg105: f32):
      "linalg.yield"(%arg104) : (f32) -> ()
    }) : (tensor<1x5x2x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %174 = "linalg.transpose"(%169, %77) <{permutation = array<i64: 0, 1, 3, 2>}> ({
    ^bb0(%arg102: f32, %arg103: f32):
      "linalg.yield"(%arg102) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x2x8x5xf32>) -> tensor<1x2x8x5xf32>
    %175 = "tensor.collapse_shape"(%158) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x8xf32>) -> tensor<2x5x8xf32>
    %176 = "tensor.collapse_shape"(%174) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x8x5xf32>) -> tensor<2x8x5xf32>
    %177 = "linalg.batch_matmul"(%175, %176, %82) <{indexing_maps = [#map8, #map9, #map10], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg99: f32, %arg100: f32, %arg101: f32):
      %281 = "arith.mulf"(%arg99, %arg100) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %282 = "arith.addf"(%arg101, %281) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%282) : (f32) -> ()
    }) : (tensor<2x5x8xf32>, tensor<2x8x5xf32>, tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
    %178 = "tensor.expand_shape"(%177) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 5, 5>}> : (tensor<2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %179 = "linalg.generic"(%178, %85) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg97: f32, %arg98: f32):
      %279 = "arith.truncf"(%24) : (f64) -> f32
      %280 = "arith.divf"(%arg97, %279) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%280) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %180 = "linalg.generic"(%179, %11, %85) <{indexing_maps = [#map6, #map7, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg94: f32, %arg95: f32, %arg96: f32):
      %278 = "arith.addf"(%arg94, %arg95) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%278) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %181:2 = "linalg.generic"(%180, %91, %89) <{indexing_maps = [#map6, #map10, #map10], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 2>}> ({
    ^bb0(%arg91: f32, %arg92: f32, %arg93: i64):
      %273 = "linalg.index"() <{dim = 3 : i64}> : () -> index
      %274 = "arith.index_cast"(%273) : (index) -> i64
      %275 = "arith.maximumf"(%arg91, %arg92) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %276 = "arith.cmpf"(%arg91, %arg92) <{fastmath = #arith.fastmath<none>, predicate = 2 : i64}> : (f32, f32) -> i1
      %277 = "arith.select"(%276, %274, %arg93) : (i1, i64, i64) -> i64
      "linalg.yield"(%275, %277) : (f32, i64) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5xf32>, tensor<1x2x5xi64>) -> (tensor<1x2x5xf32>, tensor<1x2x5xi64>)
    %182 = "tensor.expand_shape"(%181#0) <{reassociation = [[0], [1], [2, 3]], static_output_shape = array<i64: 1, 2, 5, 1>}> : (tensor<1x2x5xf32>) -> tensor<1x2x5x1xf32>
    %183 = "linalg.generic"(%180, %182, %85) <{indexing_maps = [#map6, #map11, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg88: f32, %arg89: f32, %arg90: f32):
      %272 = "arith.subf"(%arg88, %arg89) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%272) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %184 = "linalg.generic"(%183, %85) <{indexing_maps = [#map6, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg86: f32, %arg87: f32):
      %271 = "math.exp"(%arg86) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%271) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %185 = "linalg.generic"(%184, %97) <{indexing_maps = [#map6, #map11], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg84: f32, %arg85: f32):
      %270 = "arith.addf"(%arg84, %arg85) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%270) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>) -> tensor<1x2x5x1xf32>
    %186 = "linalg.generic"(%184, %185, %85) <{indexing_maps = [#map6, #map11, #map6], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg81: f32, %arg82: f32, %arg83: f32):
      %269 = "arith.divf"(%arg81, %arg82) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%269) : (f32) -> ()
    }) : (tensor<1x2x5x5xf32>, tensor<1x2x5x1xf32>, tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %187 = "tensor.collapse_shape"(%186) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x5xf32>) -> tensor<2x5x5xf32>
    %188 = "tensor.collapse_shape"(%173) <{reassociation = [[0, 1], [2], [3]]}> : (tensor<1x2x5x8xf32>) -> tensor<2x5x8xf32>
    %189 = "linalg.batch_matmul"(%187, %188, %103) <{indexing_maps = [#map8, #map9, #map10], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg78: f32, %arg79: f32, %arg80: f32):
      %267 = "arith.mulf"(%arg78, %arg79) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %268 = "arith.addf"(%arg80, %267) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%268) : (f32) -> ()
    }) : (tensor<2x5x5xf32>, tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
    %190 = "tensor.expand_shape"(%189) <{reassociation = [[0, 1], [2], [3]], static_output_shape = array<i64: 1, 2, 5, 8>}> : (tensor<2x5x8xf32>) -> tensor<1x2x5x8xf32>
    %191 = "linalg.transpose"(%190, %106) <{permutation = array<i64: 0, 2, 1, 3>}> ({
    ^bb0(%arg76: f32, %arg77: f32):
      "linalg.yield"(%arg76) : (f32) -> ()
    }) : (tensor<1x2x5x8xf32>, tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32>
    %192 = "linalg.transpose"(%10, %45) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg74: f32, %arg75: f32):
      "linalg.yield"(%arg74) : (f32) -> ()
    }) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %193 = "tensor.collapse_shape"(%191) <{reassociation = [[0, 1], [2, 3]]}> : (tensor<1x5x2x8xf32>) -> tensor<5x16xf32>
    %194 = "linalg.matmul"(%193, %192, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg71: f32, %arg72: f32, %arg73: f32):
      %265 = "arith.mulf"(%arg71, %arg72) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %266 = "arith.addf"(%arg73, %265) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%266) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %195 = "tensor.expand_shape"(%194) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 16>}> : (tensor<5x16xf32>) -> tensor<1x5x16xf32>
    %196 = "linalg.generic"(%139, %195, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg68: f32, %arg69: f32, %arg70: f32):
      %264 = "arith.addf"(%arg68, %arg69) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%264) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %197 = "linalg.generic"(%196, %196, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg65: f32, %arg66: f32, %arg67: f32):
      %263 = "arith.mulf"(%arg65, %arg66) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%263) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %198 = "linalg.generic"(%197, %38) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg63: f32, %arg64: f32):
      %262 = "arith.addf"(%arg63, %arg64) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%262) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %199 = "linalg.generic"(%198, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg61: f32, %arg62: f32):
      %261 = "arith.divf"(%arg61, %33) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%261) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %200 = "linalg.generic"(%199, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg59: f32, %arg60: f32):
      %259 = "arith.truncf"(%31) : (f64) -> f32
      %260 = "arith.addf"(%arg59, %259) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%260) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %201 = "linalg.generic"(%200, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg57: f32, %arg58: f32):
      %258 = "math.rsqrt"(%arg57) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%258) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %202 = "linalg.generic"(%196, %201, %34) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg54: f32, %arg55: f32, %arg56: f32):
      %257 = "arith.mulf"(%arg54, %arg55) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%257) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %203 = "linalg.generic"(%202, %9, %34) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg51: f32, %arg52: f32, %arg53: f32):
      %256 = "arith.mulf"(%arg51, %arg52) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%256) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %204 = "linalg.transpose"(%8, %120) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg49: f32, %arg50: f32):
      "linalg.yield"(%arg49) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %205 = "tensor.collapse_shape"(%203) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x16xf32>) -> tensor<5x16xf32>
    %206 = "linalg.matmul"(%205, %204, %124) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg46: f32, %arg47: f32, %arg48: f32):
      %254 = "arith.mulf"(%arg46, %arg47) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %255 = "arith.addf"(%arg48, %254) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%255) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
    %207 = "tensor.expand_shape"(%206) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 8>}> : (tensor<5x8xf32>) -> tensor<1x5x8xf32>
    %208 = "linalg.generic"(%207, %127) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg44: f32, %arg45: f32):
      %250 = "arith.negf"(%arg44) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %251 = "math.exp"(%250) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      %252 = "arith.addf"(%251, %4) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %253 = "arith.divf"(%4, %252) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%253) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %209 = "linalg.generic"(%207, %208, %127) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg41: f32, %arg42: f32, %arg43: f32):
      %249 = "arith.mulf"(%arg41, %arg42) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%249) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %210 = "linalg.transpose"(%7, %120) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg39: f32, %arg40: f32):
      "linalg.yield"(%arg39) : (f32) -> ()
    }) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %211 = "linalg.matmul"(%205, %210, %124) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg36: f32, %arg37: f32, %arg38: f32):
      %247 = "arith.mulf"(%arg36, %arg37) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %248 = "arith.addf"(%arg38, %247) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%248) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
    %212 = "tensor.expand_shape"(%211) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 8>}> : (tensor<5x8xf32>) -> tensor<1x5x8xf32>
    %213 = "linalg.generic"(%209, %212, %127) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg33: f32, %arg34: f32, %arg35: f32):
      %246 = "arith.mulf"(%arg33, %arg34) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%246) : (f32) -> ()
    }) : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
    %214 = "linalg.transpose"(%6, %134) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg31: f32, %arg32: f32):
      "linalg.yield"(%arg31) : (f32) -> ()
    }) : (tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    %215 = "tensor.collapse_shape"(%213) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x8xf32>) -> tensor<5x8xf32>
    %216 = "linalg.matmul"(%215, %214, %49) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg28: f32, %arg29: f32, %arg30: f32):
      %244 = "arith.mulf"(%arg28, %arg29) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %245 = "arith.addf"(%arg30, %244) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%245) : (f32) -> ()
    }) : (tensor<5x8xf32>, tensor<8x16xf32>, tensor<5x16xf32>) -> tensor<5x16xf32>
    %217 = "tensor.expand_shape"(%216) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 16>}> : (tensor<5x16xf32>) -> tensor<1x5x16xf32>
    %218 = "linalg.generic"(%196, %217, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg25: f32, %arg26: f32, %arg27: f32):
      %243 = "arith.addf"(%arg25, %arg26) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%243) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %219 = "linalg.generic"(%218, %218, %34) <{indexing_maps = [#map1, #map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg22: f32, %arg23: f32, %arg24: f32):
      %242 = "arith.mulf"(%arg22, %arg23) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%242) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %220 = "linalg.generic"(%219, %38) <{indexing_maps = [#map1, #map2], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg20: f32, %arg21: f32):
      %241 = "arith.addf"(%arg20, %arg21) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%241) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %221 = "linalg.generic"(%220, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg18: f32, %arg19: f32):
      %240 = "arith.divf"(%arg18, %33) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%240) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %222 = "linalg.generic"(%221, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg16: f32, %arg17: f32):
      %238 = "arith.truncf"(%31) : (f64) -> f32
      %239 = "arith.addf"(%arg16, %238) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%239) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %223 = "linalg.generic"(%222, %37) <{indexing_maps = [#map1, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg14: f32, %arg15: f32):
      %237 = "math.rsqrt"(%arg14) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%237) : (f32) -> ()
    }) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    %224 = "linalg.generic"(%218, %223, %34) <{indexing_maps = [#map1, #map2, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg11: f32, %arg12: f32, %arg13: f32):
      %236 = "arith.mulf"(%arg11, %arg12) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%236) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<1x5x1xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %225 = "linalg.generic"(%224, %5, %34) <{indexing_maps = [#map1, #map3, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg8: f32, %arg9: f32, %arg10: f32):
      %235 = "arith.mulf"(%arg8, %arg9) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%235) : (f32) -> ()
    }) : (tensor<1x5x16xf32>, tensor<16xf32>, tensor<1x5x16xf32>) -> tensor<1x5x16xf32>
    %226 = "tensor.empty"() : () -> tensor<16x24xf32>
    %227 = "linalg.transpose"(%32, %226) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg6: f32, %arg7: f32):
      "linalg.yield"(%arg6) : (f32) -> ()
    }) : (tensor<24x16xf32>, tensor<16x24xf32>) -> tensor<16x24xf32>
    %228 = "tensor.collapse_shape"(%225) <{reassociation = [[0, 1], [2]]}> : (tensor<1x5x16xf32>) -> tensor<5x16xf32>
    %229 = "tensor.empty"() : () -> tensor<5x24xf32>
    %230 = "linalg.fill"(%2, %229) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg4: f32, %arg5: f32):
      "linalg.yield"(%arg4) : (f32) -> ()
    }) : (f32, tensor<5x24xf32>) -> tensor<5x24xf32>
    %231 = "linalg.matmul"(%228, %227, %230) <{indexing_maps = [#map4, #map5, #map], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg1: f32, %arg2: f32, %arg3: f32):
      %233 = "arith.mulf"(%arg1, %arg2) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %234 = "arith.addf"(%arg3, %233) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%234) : (f32) -> ()
    }) : (tensor<5x16xf32>, tensor<16x24xf32>, tensor<5x24xf32>) -> tensor<5x24xf32>
    %232 = "tensor.expand_shape"(%231) <{reassociation = [[0, 1], [2]], static_output_shape = array<i64: 1, 5, 24>}> : (tensor<5x24xf32>) -> tensor<1x5x24xf32>
    "func.return"(%232) : (tensor<1x5x24xf32>) -> ()
  }) : () -> ()
}) : () -> ()

{-#
  dialect_resources: {
    builtin: {
      torch_tensor_16_torch.float32_4: "0x040000006373B23FF2A7A13F540D963FD55A223FAADAB73FAEDB983F92988C3F84C6933F9A378B3FF6B8A63F8E2E0D3FFE5AB33F9D004D3FD10D1C3FABFE4F3FF836A93F",
      torch_tensor_16_8_torch.float32_1: "0x04000000FFC189BEB570A6BEBD2744BEFA13113EDE2F4DBD57FBA4BE028E13BECE214F3DD6C1A23E4F1362BE74F39A3D7D3980BE79BFF8BC505D2B3EA51B94BECC387B3E4FEB84BE1E7681BD90277DBEEDE54BBE47B70C3EC2D956BE9F2FBDBD5205943E5A4A5A3E4E88A33E08BCD13B95ED5CBC0C7D093E7EE459BE8B2DA4BEEC17A63E920482BE91F00CBD334E59BE17D6A8BE4BC0543E630037BD30BCC4BD1806323E4740D33DAF69C33D6BC9A0BEEBCA28BE11ECC9BCC9C7643EE57061BEF796B1BE1B2AE1BD5B08AD3ED9264ABEBF8A46BE7BCFF23D3AB6003E51E0ACBEC3652EBE652813BD88E1FF3D2FAE943E1FE2393ED6ECA73E1A1FCCBCE998DFBD6B74F63D170C9F3E7F2F89BD7B2433BED3F912BE254403BD801DDF3D093CAEBE3112E6BC7172353ECCDB53BBA9F02CBB6E8EF1BC5B6EACBD6805CBBD16D5C5BD6398213EA4085DBE93F5833EDBED993EE177243EA94C583E6227943ED590CD3DB3EADEBD0C73DDBDFDE840BEA07EEABD9163943EAA364FBE1E6475BD3420A7BC8F0271BD6D95083EA67F9D3DBF76F53D3EB580BEDB11823E8A33833EDEDE3A3EA582E2BDA3C4CBBD54B359B94A24E23D1B04FD3D52E4863EFEB032BD28C8743D0D1C6EBEEEAC5D3E4DAAF03CE7347CBE19F245BAFC1A023DDE71243E74971CBE846F113E4F3E5CBEAEF5453E01A3363E14C29C3D1991EEBD0E90023E516CCF3DAC04B03E",
      torch_tensor_8_16_torch.float32_3: "0x0400000054F8503E8466713EA0CEC63D6A6521BEA4B39CBD726001BE7ED964BECCA124BEF0F31CBD9C01FABD8A1521BEC083F3BB60ED6EBD6CE0013EA05616BE9893F8BDD40BEC3D1E67123EC0E634BD64ECD33DD49BB1BDACD905BED8FFBFBD8C6EFB3D10A86B3E204CDE3DF4887C3E1CDC11BE4C11373EFE5851BE60F44C3CE06D2DBC68907CBDD64E1ABE0039F43B463A7DBE4C96BA3DA40323BEFA2D5DBE4CC5B6BD58A028BE80F51DBD20FAFE3C58214F3D40CA8C3B1CA396BD88921ABD1016163E6C2036BEB8D0F83DD8175DBEFC7C08BE3864AE3D80A44A3D10A0163E58F9173D60752EBD72BC563E523739BEB8F7483EC081833B3CCA403EAE2F2ABE00F5813C783076BDB2453BBE04BA36BE104C78BDEEAB003E009630BC18AB65BE3C90AC3DC8FE743E9051A23CC07E6B3DC00F703C3AE338BE12E50E3E583864BDC048E73DC23E1F3E001ED4BC5AA675BEC629693E203B623D6481823DB426563E067D62BE16D50B3EA0324C3CC08AACBDC821A6BDC250153E40947FBC786A5EBE20DE93BCF8DCDABD6AA46CBEE281683E040D08BE0014093B9CA255BE560D46BED4EA173E507B81BDFE477DBE1C10BBBD3CA1B6BD9C3CB2BD16355CBE36C341BE7C1571BE3854E8BD0477C83D54A0DBBD0E96183E1C3B93BD604C203CA23A033E86D548BEACF9E9BD4C6CDDBD32D75ABEB465ABBDE07745BC98C840BEA61A083E5A66283E",
      torch_tensor_8_16_torch.float32_2: "0x04000000D811FD3D26F47D3EF897373DF2C418BE447355BE10347CBE0048553EEEFE0D3E32C90D3ED48E023E9C8CA3BDF0D71DBDC03D803DEC54A53DDCCDE43DC0C8423DF8340FBDA8B55BBDAC65C93D049601BEF82F87BD186C7C3DB644683E300EBABD84C57ABE5E802FBE9021C2BC181A4EBD4C3FA53D64516C3E28B9373D7CD62CBE40E1D9BC00384639F83204BE68FA37BDB0A3833C88B9BD3D845268BEE816A93D78A4393D54B37B3EE0B374BE869E423E584D87BD9C713D3E9C0E49BEBA794E3E203B6ABC088B913D7C5C5A3E62A97ABEB00801BDC8E4C4BD1085C03C4EC8333E70F72B3DD02B79BDD0FA363DC8CE3D3EF46563BE1094B1BCBAD81EBEA01548BDC89737BD90B6D7BDC8657BBEC2645FBE7C62DD3DA0A2D03DDAEA723E04451ABED0C8F7BCEEFD7D3E7467DABD204AB5BC6474CCBD1E5464BE1079333E64455DBE36A338BE6E626A3E08818CBDDC05C9BDF078AEBDE28344BE80A2DBBB28E14B3DE89A03BE3C47923D20A8493EEC122CBED8A099BD9483D4BDD42421BEF0E3AB3C1A6305BEDCBC803D28CE1DBD7A6067BE283F5ABD7CA43C3EDC36513E10644DBEEAC259BE90BF4E3EFEB522BE0898AD3DD89B11BE0016D6BCA490163E9A2960BE102B5F3D08FE18BDA8B6243D521E063E103D2E3D30F81E3EA0C6133E3C8B403ED8EB713E70E849BD284BE3BDC086543E04DAE63D3037EFBD2821D3BDA0F058BD",
      torch_tensor_16_torch.float32_3: "0x040000008FBF893F98A2AB3F8C05903F1781BF3FDB7F543FA482933F099D653FEB08173F62CD183F437D6B3F9275A63FD422BF3FC9C61A3F7DBB783F0D402D3F2DA63C3F",
      torch_tensor_16_16_torch.float32_7: "0x04000000E053D73CBA3649BE9C86973D2A36473EECC084BDA018D0BD6220443E064741BED2BA283E9A1765BE705690BCA48519BEB014D7BD005A0B3B588410BD36F959BE98C775BE4428CB3D60D26F3EFA4531BEB0B5233DC4D5B4BDFE3C483E2E5C1C3E564F6FBE5AAE1A3E54417C3EAC96193EB0BF243ED42B82BD4AF949BEFEE25ABE00BEA23B446A973D68DF803D9019613D0A4113BED6832ABE6004AC3DE8D0233D0070F23894146C3E80CBA5BC6497BEBD16CC56BEA013BC3CA0C1B83CE048DD3D9401F63DE44FB43D32372ABEC86B5B3EC872A03DE4BB70BEF8A27FBE208513BD9C1E8CBDF68A56BE92EB793E182D5ABDE0A661BDA89C753E44EA2BBE00AEFEBCA88B033E0A740B3E30466CBD901B8C3D600D5F3D54665CBE98BB653D063E3B3E862B533E3AAF5E3EA8906FBE247B893DA4D534BEE0DE96BCC0A729BECCE820BE34D8EDBD30073EBE300E033D50ACE2BC924853BE789E12BEE4DF52BE76392F3E8EAF203EA8915DBE2C67DB3DD0BE4B3D942824BEB2D166BEF04DB9BC2C05733EA0DC98BC7059BABDFE2F2C3E2227213E58AC4D3E64E45C3EF2275ABEA8096FBDD846B5BDEA053E3EFE9F603E6CE3CDBD16A82CBE8ADE2FBE2CB5BEBDB47F653EB63B64BEC0B18D3B80DC4D3D9C1FCEBD70ED70BD04878ABD5C6936BE22D5143E66302C3E90AB38BE1E3F34BE52C93B3E282A12BDA0B59C3C6A882BBE00688ABC301A9C3CA0A9FE3CD6A60B3E60C1213E6E241FBE28E32EBE200C203C88BB383D4C0E1E3EB23D1C3E3C2DDE3DC0DADDBCC449FC3D4C39A53DECED90BD1084B53DE0D6F93C1866313D2865303EFCF19B3DD6FC02BE081B4FBE72CE05BE0CB97DBE0429073E3A835BBEAC891EBEAA930FBE1EC87F3EC8B1103EF4BF8BBD00265F3E5EEF023EE6BA5FBE5CD8903D4406BF3D049880BDD48A8FBD900E5FBD6A8B2ABE762C4FBE9848863DA08905BC3E6429BEC8792F3D000B7F3C007997BA683C583E20E32E3CC8048C3DC8A1B1BD6006F03D5E4F1B3EA01D453DEC09A43DB2AA33BE2CF2D53D6203043E683C34BE7CE5733E34C6753E606C20BC0ED674BE98A8B4BD98E2ACBD24B1C73D206404BD6076FEBDBE89343EC8B914BD1874E8BD08CD0E3E9093413DACC8D03D16D72BBEEAA22D3EAA7C7A3E60CA7FBC7A8314BE849D92BD464A573E7056043E40658EBCC04B0ABC94DC5B3E0C2DB13D58D717BD143F95BD20D48C3D9001373EF8FF263D625D473E1AD3623EF85F2F3E587900BD4008B03CE8B0BABD70A5273EE4C625BE386D153EE46723BE00F845BDF8719E3D50DEA2BCE84BAE3D54577FBE1291113E9C5B0EBE3CA6543E42E86E3EE0CA44BC10302F3E86A906BED068BCBDCE8D5F3E0016FEBBA6BD633E380800BE1C8ACC3D544072BEE4D979BEC06E74BE0A9E0D3E8888083E40457ABE10A022BDBC95953D3C304ABE",
      torch_tensor_5_5_torch.float32_1: "0x0400000000000000286B6ECE286B6ECE286B6ECE286B6ECE0000000000000000286B6ECE286B6ECE286B6ECE000000000000000000000000286B6ECE286B6ECE00000000000000000000000000000000286B6ECE0000000000000000000000000000000000000000",
      torch_tensor_16_16_torch.float32_6: "0x04000000F287303E2A066ABED00006BD121D323E78386F3DD00F3EBE789954BE3C913C3E804C123B4CBC333EC0B22D3E9C5136BE7018593E7A96793E6E5701BE6CEB33BED66E15BED4FB2B3E3813023D4888283D32F2233E46021B3E1CB9AFBD9C6B6FBE207867BE70A9073D18699F3DA8AA1BBD685F393D00C72C3D8041633DB2F225BEA09D05BE08F325BDC42949BE8CBE6C3E80AE8A3C6ACC75BE922130BE2861383D1A617CBEE007FA3CE8CE713DF060D7BD8A27303E169A5EBED8255BBED60D6ABEB45E88BDF8E6753E10BAA93CF83FB13D70A5C7BD0C36BBBD620B293E160926BEB05A383D18B35A3D4ED2283E443EB5BD28DC9FBD7E0F14BE28FE293EAE7876BE640EAE3D60D22EBC620063BE9E216FBE2AD676BE00FBD2BBF8F92BBE9001F1BD802D603EE07532BDDCB9293E34A7953DDEDA323E168E40BE703849BDE00C02BCB49DAEBDB49DC9BDE88F01BE9A3D66BE1C11E2BD40B39B3C60D52F3E2482813DDAF9733E4AA400BED0FBB0BD28F2AA3D70465CBEBAF326BED25263BE9867693E70F5913C484F403D8061653DE4B1713EA02DC2BD7477A1BD6804633E0CE140BE384A09BD605D8C3D1C7BB2BD40118D3B5CC9E73D884B28BE706236BDA0F1E63CE83AE73D264A5CBE54A5273EA485A5BDB8650D3DE06427BE7C4C2EBEB01A133DE85EE23D903B4E3D264F3D3EE834D63D9C10E5BD8E405DBE0459983DBCE2563E26B030BEA4AB373E10B3B5BD00DFC83BD052983C0C03663E90E6ED3C800932BBC09BC53D7AA9683E30A232BE5A50443E1A5A663E424E56BE207E85BCDC6E963D304BD43CF2071DBE3679613EE2DE1A3EA00F3EBD3C5C5ABE326A60BEF857373D407E753C765122BE8027F53CA040773E769E6D3E4C6BB5BD108000BDA4A89F3DDE9C623E0017FC3BA8C81E3D365104BEDC785EBE4A21393E2C9BB63D7CB8B63D006E713AB47487BDF0EBEA3C508320BEE4C8F5BD2CD9F63D4EB8683EB8B66E3D0C183C3EF8CAAC3D004B3B3C88DB2E3EB4E2F2BD0C719A3D60EC19BC80352FBD04099DBD7AC0173E2C78E83D56BD71BEA01034BE58C872BD408355BEDCDD8CBD603F62BEE8CA3D3D608D7FBEB008CEBCF02CAB3D68F3B0BDB827533DA075C8BCD005D33CDEC1173EA8630FBEC0E304BE409B133D706E20BEA65F403EA0A32B3E10706EBDAEF26B3E683473BD8C7B1CBEF0A26CBE50A796BC5C5150BED29B20BE2E237ABE76C43DBE6612063E5ADC293E58CD603EE06DAB3D7825743D041BE8BD0E5137BEE01CBB3C30188CBCFC193A3E685ADB3D609541BD248B58BEB491F8BD6EAE22BE807BAF3D30955A3D548B263E907EFE3CFCF5AA3D0A44163E4CDC883DD838E8BDD43AD13D8886243EA0F609BD5E6F113E8469EF3DA455843D6AF93DBEC8AC7B3E5452C53D0EB44ABE0C5302BE7A1374BE1807DCBDC0C2C5BDC8E50D3E",
      torch_tensor_16_16_torch.float32_5: "0x0400000036522B3E8A426ABED0DA9CBD5E607FBE789FB03DFC587DBED04F0C3D809A0BBC3C44203E6C443A3E80D2C8BBF08117BEC66047BE68DC68BEDACB4FBEDEF90CBE8A8B133E006193BB30AA60BE28EC25BE90D852BE221606BEAC9A483EF018713EF445B83DD88D3ABEF0140BBE38FF32BE96372ABE9896413D60F9783DC6F601BE90374E3E00A2C5BA8C95703E3EB35B3EFAC219BE587B35BE526762BE34945E3E3C01ED3D3C9174BE70170D3E807129BD78672DBD0C064D3E60CCDDBCD2A151BEDADD5DBE8E0A003EB09F93BCE831A5BDD2D15C3E2022003D905680BC2C1E4F3E36702D3E1860613E0A22533E0CD9CF3D1489F33DF0672EBE909E2A3D0A47403EFCFDB73D8041ECBB00884F3B8EDC443E3E9C6FBEB0AE52BE6C5086BDFE8A0F3E4267513E4050D73B106443BE18B4713EEC22323E48CC00BE30AE8EBC429E14BE8A3548BEA059FFBC00753DBEA80587BD58BF693E9476F1BD14590EBE78AC71BE706F6B3E3820683EDC56F1BD1C7FDCBDA498D93DB8310FBD6094F9BC80490EBBF66768BE8CC099BD822C713ED065683E72A0353E740B503E30A646BD08EA3F3EA6191FBEC4C0FF3D5095C3BDBE0F77BE602FF73D5CFF783E8E4748BEA64E3F3EE8DD733D14B765BED8AB913D30274E3E8686343E20EC31BC508A42BD107A74BD2E577ABE2C09DBBD240F723E00E068BEAC60A53DA0A0A53C8A8D20BE0A01643EC0DA5BBE52AE343E50FDBE3DE8F674BD68DD093E6489F2BDF0452C3E6850303EB062A8BC2A3D78BEE4A77CBE3CB5F8BDFEDA5D3E04C3F6BD1A0A66BEE4FBC83DDC7E723ED8AB2F3EB8AE603D1C610C3EA0D063BD98695CBDA0BBFB3D900C803D8C393ABE8489733EDC71783E90D9EFBCC010363D9426843DFCAB3A3E0067F7BA6E1A493EE03E36BC42F8293E6084FD3D503DF13CE0E2FFBC4086533C80D0EABB389A4CBE201C723D04B2CABD16A717BED41461BE3EB57FBE60BDA63DF0B547BDBA3E203E0054603D1E3A54BEF0A5AD3C724F03BEC4A9A1BDA07CDD3D143E4D3E74119BBD868A1DBE7A2473BE50EF063E80F159BE7461B13D1CCD83BDC025A1BC4043293E0A07523E20A5743D4866B4BDF8A2273E387E4ABE0467C03D049F593EF83CBA3DC04EAABDC0B2CCBB00C8213BA08F543D4466453E529011BEBC77433EE84EBB3D3867693E2451D4BD0052C53B281FA03D7C8D543EF4B9323E8CFC453E80D729BB98F090BD7A1D4A3EDEE04F3E0642493EB88434BE404802BDA86C853D0C3B953D0A2769BE182747BD8CD7F8BD5873E13D600A99BD08DE7BBEDEB95FBEFC86DBBD464226BE406910BC0067AE3A8C65F63DD861F03DB0BB2BBE8081203DB2C9033EDA593C3E94AA2ABE183BD9BDB0C6ED3DE0DA61BC2C5D0B3EB68A57BE242AC2BD48493E3E80380E3EB896153EA8B5673E70509E3D00E01A39B48FE53D",
      torch_tensor_5_8_torch.float32_3: "0x040000000000000000000000000000000000000000000000000000000000000000000000A46A573F7775CC3D57D6233C6E12833AA46A573F7775CC3D57D6233C6E12833AB7C7683FF96F4B3E3ED4A33C6912033BB7C7683FF96F4B3E3ED4A33C6912033BC381103E6D4E973E1FB9F53C939B443BC381103E6D4E973E1FB9F53C939B443BCFBD41BFD861C73EDBCB233D5812833BCFBD41BFD861C73EDBCB233D5812833B",
      torch_tensor_5_8_torch.float32_2: "0x040000000000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F41510A3F98B87E3FB9FC7F3FF8FF7F3F41510A3F98B87E3FB9FC7F3FF8FF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F26707DBFEF90743F83E27F3FB5FF7F3F26707DBFEF90743F83E27F3FB5FF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F",
      torch_tensor_16_16_torch.float32_4: "0x0400000010E76CBE88D525BEB0AA133DDE3245BE80F6733D601AE4BCA472DABD8C61503EF0862B3E00DA50BB687FC3BD742E5BBE90CFFA3D70280CBDD00FDA3D70A5B73C00C0A43A5C576B3E90B6B4BD9C5B993D2C48123EB6F646BE607015BEAC1666BED84FEDBD34DD923D649BD33D10E7DBBC0853EBBD9E8141BEB2AB2B3EA6E9343EA43BDCBDB0D035BDACBD23BE5C0EF2BDF84B913D6C4AAD3D647AFC3D3091AABD9008073D48900FBEA82AC7BDE8880EBEACAE07BE586EBA3D74E3B1BDB0437ABE648E44BEE64F4ABE28C0FD3D108282BC001C69BC569741BE1064BCBC909C683E5065D03D1C24C53DCCD03FBEDA1E2F3E60F57EBD4091ADBBDEB5113E88A7023DD8845F3E54DE673ED0F253BEC8A84DBD7AFE663E483A143ED493A7BDECE0C6BDECC1E83D48937A3EF0FCECBD3CC5A33DB8896ABE9642173EEE7032BE643BD33DF63C17BEC8AC39BD00FB20BC2CC8EFBDF8A26ABEE2666BBEC071CE3C1CDFDFBD5C5250BEB843F53D28F541BD882E7CBE2AC67BBEE0B0173C503784BCC8DBA73D488806BE141F843DF060CF3DBC011ABE506FD5BD96CD47BEB44DB8BDE0ED90BC2CD8483E94123C3EA456FFBD90897C3D0CD668BEA0FEE03DB072D8BD64157C3EECE24BBEDCAFFEBD6801923DCE451A3EC4D2FF3D962133BEB046313D8015453EE20A2B3E389A95BD907D103DA06E953D5279223E7429983DC61409BE00D7673C245A1ABE1029E03C48467B3D6CC1F43D8807FB3D80197A3D843BA33D7E6C39BECCAA573E5057A73C4C34A43DD0D3AF3D80F411BED60B5ABECEB95F3E26842D3E808315BC80F4BBBB40E9BB3C18A541BD6070FF3C00C2F73DA2CF2F3E02553B3E3472D2BD0CF059BEE0AD783EC28A57BE96525ABEBA7E4D3EC02D703C3088223D60B1C5BC6C5969BE9463D7BD9AB5403E78FE2FBEB0AC723D604008BC80320A3D88A53DBED836643D74B199BD500708BE44C1F7BDB89F09BDC07763BCE272633E6C467CBE680608BDB418533E36DC603E8404D8BDA0DBA53C249DED3D7E3D6D3E142B603ED463D53D3A30673EA65710BEF4812CBE508D41BD20E73ABD4CA7B9BD903EC5BC825606BE802202BC90EB603D1AEC763E0094073ED24A05BE809DA53C98378FBD0228053EA0BED1BC3EB808BEAA2D593EF425C23D301FEDBD5CB6CA3D2A732E3E42F64C3E422D1FBE40B5FFBB249E90BD509A7EBED45FC8BD286DA0BD343E26BED89A893DE07918BE3249723EF67C60BE925D2FBEDA6A5C3EC2BA783EC63A1FBE10B46DBEB06E8EBD9EDC4C3E2402E5BDB07B1ABE0084C1BBAC06AE3D828F57BEE21B19BEE6B119BEA4D44CBEA0A0B33D56A8403EE2D2003EC6362CBE7A6562BED84A23BD300E75BD881FCF3DF6844ABE30B8FB3DCCAC22BE000747BB782218BDA054E1BD76DC4EBE8C5E2ABEFCFC5ABE489DEABDB4434CBE04634E3E",
      torch_tensor_16_torch.float32_2: "0x04000000B18FB03F7F01493FC56B923F4ED5A13F220CB13FE56B2F3FED50B83F72C7AF3F36C58F3F5FDA6E3F76779D3F9EF2593FFE816E3FD29A973FC4E68C3F3E1A6F3F",
      torch_tensor_16_8_torch.float32: "0x0400000000DDEA3D5581813EBAA4D8BD8999C5BC78DB8BBD5D05AE3D9FA2C83DF5ACAEBEA7AA1CBEA4F5053E8156893EF623AF3DD5DA8FBEF0C0423EA36C07BE52E2803E3D20373E5ABD5FBE940C0CBE5C323BBE87E68ABEF5F7383EE2646E3D00078EBE7B5D9E3E46FF6A3EAD9D00BEC42FE53DE5C1ED3CCD9DDABDAA963A3E25E546BE5AD0A1BEEE4519BD2CDBB0BE27F9093E9BF0953EA665FCBBF570ADBDFAEE9C3BC4E1943E9290DD3D7CEF183DAF070CBEB8BB2EBE96C78B3E3E3843BE7BC54E3E1960943E8A7648BE7ED554BDFB818E3D3609D33D54A7533EB8259B3EA489873D78794EBC23A4873E97FA843EA3AB99BE18183C3EF33F3D3EDF375D3E9C3C1E3E367D403E1176E3BC2940613D507C253E6432EEBD9F81A2BE643141BDC59F553EF4220EBE4BFA243D72E051BD5866BFBCCE99AB3E5531B4BE9990CF3B6564E6BD479E1A3EB72C613D0BC0F03C4ACC6B3B3C691E3DC4C5AABE38D2FBBDA2993BBD9732B73CEF945FBE55E5A7BE827B97BEDAF62E3EF5D6AABEA84A94BE7303FCBCA5DFA13E7938473DEE033CBE6BB4A7BE2666083EEFD01FBE43D930BDC3615ABEEDE0EC3D16362EBE145F603ED05098BE711402BDA70168BDFBDA48BE564C8F3EFC694DBDA3AF893DB088383ED1463EBE5A5C3C3D8B6FAB3EB16D983E61B82CBED128883E8065A8BE52DA7CBEC8C12C3ECB9B853E779F41BE4AE8E23C713FFC3D",
      torch_tensor_8_16_torch.float32_1: "0x04000000D0A313BEAA2D0ABE9A0C21BEDC0AE43D7803263E46941DBE1020A1BCC05C4F3EA4342EBE6CB692BD78C2BABDEE8F243E8CD1F0BDBC2CE53DF8DD04BDC09BD7BBA051B6BD8C4902BE2009D13CF64D3B3E5CB9B03DF0E075BD00F0B7394416D53DD032453D40C6FC3DAA897C3E2E805C3E0076D03BF062E03D289373BD0044E1BDC6FF05BEE8B13FBE7E6A753E70708BBDAE8414BEE83D6F3D508652BD5867543EEE8708BEC0657FBC62DD363E1866023DF0EA803D2AEE44BEE04B973CF0567C3E30AF913CF6FA523E70D49EBD80EC853CFA5C23BE00A4EC391047AC3D10423FBE786D05BD7CACD5BDFCBAE03D2499E33D0421ABBD84B3103E9A914DBEC067B63CD6DE743E72DA6DBE9012F93DE8E245BD36CB09BE60C9353C8024583EFED7723E4A50203E50AE873C6044CE3CC071DC3B52E3153E7C75263EDCA9F43DB814E93DA4DEFFBD7C176D3EB82E6DBDC83D983D40E6853D9C66B8BD0086B23D766739BE80DB373E928175BE2875D2BD16EF21BE3C133EBE58880FBE6E41113E40D5A33DA4F8473E3E9363BEA458DF3DCC7BD33D90A986BC7456F0BDF0D7483E3C627ABE28B2CCBDC81D49BE4A4735BEF27758BE86D3593E0AF30FBECE5C1DBE7EB778BE1C76A63DE4B212BE6026443CB040A83CC6D028BEB2876E3EC034D9BD1CC85ABEA20264BE00F8C33CE836153EC2F237BE56D576BE9EF677BE38F7B83DA41621BE",
      torch_tensor_8_16_torch.float32: "0x0400000030EC6C3E52BC0A3E346AC5BD82E1613E60241CBE166D77BE501093BDC0D7B83D3C5A4BBE50C1163ECE82733EF89ADC3D721505BED0258FBD60F1663C3899B93D4C4662BE14C2ECBD4EFB103EFCD6AABD98AFFEBD2C7631BE0CDA413E2848B33D98DC153E9054FABC48F7373D0E4663BEF8697C3D1CA872BE48AF1BBD60AE92BC881152BE002DC9BD66B5713EAAEC52BEC446CDBD981545BEE059233EA0A966BC5605453EE6F101BE2A57633EE0DF53BEA010D43D5077D93CE6613C3E74718B3D9C0F2E3E20B5DA3CF8004B3D8043C8BB94FB1BBE8C7F94BD4CD301BE64B578BE68A248BE6CB7DCBD08CDE6BDFAD5703E78C48CBD009CEDBD7A604D3EB40E2F3E207C55BE00684C3A4046AD3D4002C53CC8B7C0BD40E6E43DD021BCBD9416CEBD8034E7BB4CFA6B3E0A79463EE08032BC9657043EA6AE59BEE01151BD2A7318BE1AF0003E000961BDF86641BD46C34FBEA00854BE107F2DBE6EED32BE00DD61BCD042563E823D663E905360BE1A1A1F3E2C4D503E28B20CBDF89086BDE0B2D33D5050F03D801906BE5CCDA33D006BA3BABCC2583ED87B383D40B0393DE21D7D3E4A243BBECE50193EFABA023EB63519BE7C23EFBD503F993CF06698BDE80E3FBEE09DA9BC68C9DF3DE0A8203CF4F0CFBD4A61623E48635A3D48FD9A3D02A04A3E981E7A3E28CD113D4A3B5FBED2175BBEA81B53BE58C8CA3D1EAA2EBE220455BE",
      torch_tensor_16_torch.float32_1: "0x04000000201E4C3FA25DBF3FB184763F12B9B13FD8EBBC3F2BE50A3FC0A6483FF460043FF0F44D3F2CDBA73FC6D6883F869B2F3FC7B4723FB051523FEA66683F13734E3F",
      torch_tensor_16_16_torch.float32_3: "0x04000000DE7358BE34ADDA3D801F003D52130FBE9085403DE6C07CBECC5F3F3E32C6353E50B6F7BC489096BD987AC53D88A556BEBE3B043E58F3E8BDC6A2513ED05680BD3CD2203EA8BF29BE220D693E44F0B53D7A2F13BE42A33B3E4C44373E04073BBE46CD47BE400B78BDBAEF77BE3EB856BE201464BC569F13BE647A393E465E66BEA2940B3E2438743ECEF4553E80B7583D9C4AFE3D066B0D3E10C2463DAE3522BE32B000BEE2933ABEF6B805BE744DC2BD728130BE4AB22FBEA2EF56BE407CD03DF8E49CBD76F562BED0A37B3EC43795BD60BFF73C24ABDEBDA047C2BC0686653E80656F3E8027293CA064BF3D106B163E10324BBD666E4D3E6E7162BE18EB8B3D800E03BECE681A3E709ECB3CB01095BDF8EAEEBDFAC9133E8ED7193EDC278C3D78BBDDBD48AE1ABDC4E1FA3D4038B6BC468357BE3E467F3E60ACE13C889E78BD5019433D187820BE0C2B8D3DA8DA36BE969B77BE5C3FE1BD54DCC5BD405E06BC92D3773E58DC2B3E1C6C523E00C001BEE8D062BE5C23823DC462F53D6026003D3852653D3C75213E0466EB3D5892353E44D07ABE028557BE30A696BC68BC083E10D94C3DB05C913C305AE63CDC37243E3A4B283E84C7C43D8851743D503FCFBCE028123E424C653E368864BE2844493DA00F88BD60E52D3C1090F8BDE4B6B83D7E17083EC0B0983BB012C73C423F36BE266A7A3EE6097BBE0EFA253E987774BE66BE5ABEF0C7B53CAC8EAABD684F3CBE1026FFBDE81E7E3E908BF4BC7C22B2BD585EBBBD3E9925BE141362BEF4DB883D4CFE53BEB6A57F3EA436753E8E4B323E06451CBEA0033F3D001722BE8013BE3D4007F03C380E283DDC7CFABDE46A953DEA01333E64BA4DBE045369BE94AAB8BD8451FDBD94434ABE649C493E96D8623EE0B0A4BDEC9E74BE804C23BE3065C23CB67A243E86F91DBE3E34723E9C65013ED0DA553D4C266CBE808F523EDCDE963D443CD83D8872D1BD285240BE829123BE8099453C50C3EEBCD0B3DD3DA8DA78BED02CC73D80FC173CC0E9A83DA89480BDE8636C3E7A41653EA0F181BD809F0B3C6AD430BE48AA1B3E18756F3D90FAB43DFC00E0BD30E4CB3CF84330BDD8CD663D60DDC23C0082D8BCBC389F3D00AC493B26F82BBE20A5623E70AB0DBED871D4BDC05888BC708304BDAAB112BEF89856BD28AA1FBDBC18E43D54FAFE3D2E275EBE68DC3F3E6CCDF6BD186E1FBE5040C4BC3E9017BE001D8D3D4846E1BDB072993CBC304CBE189F303ED0965F3E3EDE5E3E40A257BC109A09BE7017943C78151E3E1C2B023E3C99303E241F36BE6EC5203E2000CFBC685977BEE66A29BE581E213D8870F63D08469A3DFA0F093EA0F2F03C6086EB3DC415B1BD3CE2DB3D3455393E4460B6BD84AAC43D2E4B643ED0818CBD5022BFBD468D45BE3898603DDC8C41BE9A6B21BE6483BABDAA3479BE909344BD",
      torch_tensor_5_5_torch.float32: "0x0400000000000000286B6ECE286B6ECE286B6ECE286B6ECE0000000000000000286B6ECE286B6ECE286B6ECE000000000000000000000000286B6ECE286B6ECE00000000000000000000000000000000286B6ECE0000000000000000000000000000000000000000",
      torch_tensor_16_16_torch.float32_2: "0x040000003CFCB9BD80D1C4BB2868063E5861B43D465E183EFC5473BE804BCC3C0EF82B3EDEAD0ABE00D2763CB8314CBEC6F3603E92FC5FBEA4C2A83D783C34BEA0D5E7BC5C61383E5C7722BE749F3CBE00567C3BD89107BE461E303EA0AE5EBE0C791ABE8059753E4089653C16806B3ED28F40BE4CC5C1BD1425EEBD28B4F43D4ACD7BBE645AFEBDFC75C33D2A91563E76E20D3E286767BD6AD5073EECDDE43D00529A3AD047E83D38B359BE40BF58BC08770EBD481451BE2682103EE82642BD047EE6BD6411C43D72911DBEB899C0BDC0A0C73D7CF64F3EF0477ABEC028F5BB74028D3D5C70523E06612CBEF0D3963D9E0F09BEC072EFBD405637BDD66B71BEC8A7BCBDC04F78BC38E8E3BDF0CBE23C10511C3DE2DF3DBEE8BC1CBEB867523EF0C4F7BD207215BD58CB923DA81FE03DA0B1273CB0BFFFBDB854A93D60A949BD941505BE741283BDC065533D880C67BE008875BCFC714B3E10C5103E06C56F3E1C4E2A3E02307C3E644BA33DA891703D6C5F5E3E901AFBBCD82E3EBD4E096FBE300F56BE7E203FBE909ED7BCA05543BC928C4C3ECCF3863D7C8659BE70F9263E4C3754BE44E4E3BD2441383E8C2273BE86D86A3ED0CE41BE38F5C0BD0E211BBE3000B03C625725BE0035913CD4AA4C3E342FA0BD00D7F7BAB044E3BD40C0813C203F35BE40E7CFBB64789B3D28EB043D42811C3E561B32BE722A6CBECC8DAF3DF21B23BE60F6383C08DAE63D7AE46FBE264B643E10E5563EE8EE69BD847005BE505FA13D261D4BBE80ABE2BB0022BE3BD8D14C3DE47F1BBE0090C33D9A8625BE441EF83D12B91A3EA84ADC3D30AF91BCCA6640BEF8DF2ABECE13093E30FE8E3CA229163EB8C5A03DB0D565BD9490CA3DE66A58BEC0B701BDC0AA1E3C8C19E3BDA40FA3BDB8767F3D5CCE33BEDA0D073E3EC125BEA25678BE98E4D13D98AA0BBD5863B5BD8035B13BA0C472BE90939CBD4846F13DC2DE5D3E388324BE0ABD723EBC56BBBDCA453BBE1E152ABEFC329F3D8C99323EA0CA31BCEC06FB3D10A0493E540F1ABEA01F473EE8C11C3DAEA320BE908B6CBDC26C46BE20E579BE9434003E90707CBD2A4D2DBE7C835DBE2496D23D6062B83C64AA873D3E4301BE40737CBE42D33DBED47806BEECEB773EB4F67F3E7E85013E3C93B43D80BC6C3D32F8673EE23806BE2C63773E903E39BE2004E93DD0AFFD3CBE1673BEE60B363E7416493E689BDBBD305BF6BD00D222BB08132ABD409AAF3DD6C7593EBC8C4D3E9CA384BD3A4F3A3EEEF2243EC0DCAB3BBC08FC3D0091333B765123BE50AD963C40AA64BCC42EA43D80FFA5BD28C3683DD41324BECC64CABDCE7329BE3C9DB4BDAC29BBBD58CB60BD1888B03D7CCE11BEC64A663EDC1208BECCC465BEE08D58BD28787FBD6C3FF23D30BACF3D1489EB3D6CF621BE4E1B003E18EF233DD870953D8CC8DA3DB0E94A3D",
      torch_tensor_16_16_torch.float32_1: "0x04000000E8220E3D80D756BB6E0561BE30AEF13D9A167EBEB063683D940F723E2CEDB03DC052BF3B3ACE753E20BB61BDA471DC3D40D9C23CAE094A3E8CEABBBDC0C641BE8488DB3DA4B0633E96715F3EE02E2E3CAC916FBE58AAB43D001C17BA6880A13D909E5B3DA0EDD93CF8225A3DF4FEB5BDD87D7EBE7204393E586D3F3DC0B0BABBE805D43D605CB7BDE2E736BE801E493BB8D663BD482750BE36331CBE28DB22BDC6A5523E0C0F563E122B59BEA04CB9BDE0F157BDC85064BDB4D266BE9444033ED4F5BABDD4F419BE40E027BD10EFDE3D409A42BCEED4323E38383E3ED2920D3EE05319BD32F86DBE64949CBD7E873F3EE4E5603E2651573E4CEF293E585F04BE381A6DBD2A01143E8C11093E4070E6BBE8CD67BDB0EB33BD689E163E742608BEFAF870BEEE94623E62472BBE302BECBD1015F8BC10FA97BC80CA7A3D58DC0F3D3478343E901058BE909CD9BD7833D4BD00CCAF3A94ED93BD24335DBEE22C4CBE1A681D3E0C622A3E8AD368BE68EC01BD00F4613AE07627BC60EC2D3D0EA5373E888F4FBD906A983CF4C6E2BD2E794ABE626A05BEA0179A3C60283F3EE8FF50BE00AE6E3E28AC52BDA837EF3DF6FA773EC044183ECAFE513E688FFEBD7C4321BE5ACD50BEF24E2B3EBE55693E7430003EA41D3FBE18140A3E26F540BE989A39BE3CB513BE66BC713EA6504FBEC4C31F3EC40C1CBE20E0D3BD7216563E18EFFFBD5067623D84D2863DAC22EDBD7C20C7BD545727BE1EAC2BBE60EC0BBC8C05333E44B48B3DCCF9F8BD4844073E024B7B3EC04D08BC18126F3E2ED62ABEC830D63D480215BDF8223ABD32510EBE0C3D5D3E109CB8BDA8DC5DBDB442DA3D5420183EA04353BE5074793D94BF333E30A29F3D803C3E3E58276CBD6089863DB89C65BEA00C21BC766E453E60A0083E742450BEA4C490BD42AE423E223D423EF043E0BC5CEED23DAC530EBE248A0F3EB66263BED405893DD0F5A4BD686B863D122A3D3EECF99E3D50789DBC184E4ABEECCE12BEF67A423ED48349BE904A53BE76EE3FBEF04D8DBC1AD72ABED0C597BC94FA3EBEF85B703DE47D183EF464C5BD768E0B3EF8212F3D80423F3E80CC61BD703142BE3033A53C60EB5A3D54A65EBEB68C59BEAEEF043E382AA83DDCFC0D3E84106B3E80FE61BD903E9D3C80EEB83CACDFEB3D424F1CBEFC24453E64552F3E045E263EE0877FBD14C4B03D38721A3D5C13433EBC00173EB845B73D28CEC1BD705FA6BD40232C3E905641BDD6EB453EC8E50BBD5C9C1DBE2047053E4092613E58577ABD26781B3E728F5CBE04239ABDCC6C03BE3032E8BC124A493E20AB73BEDADE7E3EB880003D58C02BBEE66B08BEF075913D2E51313EC0BA4B3DB4F111BEFC73F6BD5C245D3E12294D3E0CB2553E5E69633E40FF873C10574C3EC812CA3DA8AE3EBD1802A6BDBE4749BEA429CEBDC83F173D",
      torch_tensor_5_8_torch.float32_1: "0x040000000000000000000000000000000000000000000000000000000000000000000000A46A573F7775CC3D57D6233C6E12833AA46A573F7775CC3D57D6233C6E12833AB7C7683FF96F4B3E3ED4A33C6912033BB7C7683FF96F4B3E3ED4A33C6912033BC381103E6D4E973E1FB9F53C939B443BC381103E6D4E973E1FB9F53C939B443BCFBD41BFD861C73EDBCB233D5812833BCFBD41BFD861C73EDBCB233D5812833B",
      torch_tensor_5_8_torch.float32: "0x040000000000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F41510A3F98B87E3FB9FC7F3FF8FF7F3F41510A3F98B87E3FB9FC7F3FF8FF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F3311D5BEA5E57A3FE5F27F3FDFFF7F3F26707DBFEF90743F83E27F3FB5FF7F3F26707DBFEF90743F83E27F3FB5FF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F305527BFA7CA6B3F94CB7F3F7AFF7F3F",
      torch_tensor_16_16_torch.float32: "0x04000000E0FC2CBE02B8443E3C1EDF3DC84DBE3D88BD22BD60EF6C3CC02C8D3D240BD23D600853BCE011703E305637BEB43953BE645E7BBE307A3C3D6C7B8CBD5058AFBD34CA7F3E143035BE80D0B33CC80F5E3DF2CD713E3C1A663EBC39403E16A4693E1CD6AA3D746DB1BDD09DE53D50FDD53D5C1100BE569F203EC8337BBDC080B03C00AD533D80F7D3BCAA08723E40574E3DD0FA913C64421BBEA05ACE3CD076A43D80BCCD3B1C842A3EE2F06E3ECE6F6C3E80E149BCC040283EEECA3F3E068E22BE362D68BE300A62BDAC6DF13D1A750DBEC084853B600B803DC06D89BD1E8867BEE439703EF0FA24BD78E95D3EEC141D3E08D070BD180D0E3E200E123DE841753D886286BD94AE41BEACD8253E24F8E23DD0BA613E2C4BDF3D0085F13BD84B97BDC404EEBD66317A3E281B103E4CAB83BD74BB9ABD405949BC0C767C3EF8248B3DE2083D3E5876783D20C3153C0E68383E8C5D09BE245B13BE3C92533E8C40B53D367629BE96D77FBEEC39B4BD30D9DC3DF08C353EF0085EBDD83B8A3D54619DBD4074B93C48902C3DA0867FBD30DEBA3DC88C7FBD0891DF3DE06AE0BC388993BDFA90773E040E9ABD5829883D38133EBE687D703E589D5ABEA2310F3EF07CB7BCF8F355BDD8E2FBBDD048663D3EFC3FBED829083ED6CE69BE32107BBE60F3483EB0C29F3D00A3D13B88FE3E3ED83D2DBDB05692BD72CA69BE48874F3E12C327BE80C732BBC8DA72BE203963BDCCD3B6BDEEEB60BE78E251BE3C638DBD50F1563DCA905F3E0435B1BD186D143EA0132CBC00BFD63C5896353EF64F553EB8B81F3ED08ABEBC021775BE4E2677BE5AAF143E56EF3C3EF69F263EF2C2673EBC8049BE604B673D70241FBEB0FE993C646982BD40D6B53CE656773EC2F727BE78B84DBD40F9E93BA0044EBCBA8B3ABE18F740BD668A7CBEC4628BBD2E4D443EEE4760BE000CD0B99A97503EB4E691BD040FE23D6C529EBD0C1551BE84E38EBD343BB4BDAC4E583EA4E5C3BD802E053ED0C355BED681713EB861B23DE8466FBE769177BE68BD5B3D48CF1EBEA81F013DA0D31B3C1C6B8A3D2CB1883D4CE4A1BD004BADBC24089C3D283E0C3DFCE4533EC02BDABB90A3BFBD183341BD9840443E809543BD2627023E6A4E533EE2F030BE8CE9323E72910BBEA663583EAE4E2BBE6C4E54BEE49D5CBEB8C024BD402F1A3DE4ACB33D4EBA00BE7079ABBDFCAE853D4E41653E909DA8BDA2C36A3EB4C8C1BDC6051CBE0A3B533E6079CFBD805488BD2E38173E5A0A673EF076013EACA2CB3DA0363BBCFCDFFDBDC0C6763EE2DF2BBE3A021F3E5863103E222321BEA841443E427756BE98F34D3E24626CBE00EF3EBB9CF0D9BD108F1C3E4CCC6DBE70598C3D5A2F46BE2012E3BCC0A5F93B9090123DD8DF3F3D1CEE01BEE0563FBD2C158D3D0C06D63D2034BABCC83F58BEF86F78BD5CF7413E",
      torch_tensor_16_torch.float32: "0x04000000CD50B63FB570253F8EA0A23FB443A83F762C963F868D853F4084043F58F9453FBFA8173F6E24993F4BADA43F863A843FDB096F3F133E863FD9B6B53F36446D3F",
      torch_tensor_24_16_torch.float32: "0x0400000064A088BF649D37BFEC7B8B3F3C8FC9BFE416B93F047F1E3F801046BFD3CB1DC05F2F7F3F6BA5E73E4E56B1BE767839BF785CDA3F1F9B0E401BBE8ABD87A96E3E5B5892BF1F30543F4113743FCEEB963E5708C23FC356C3BF3A3DC5BFDCA64ABF1156CB3E59C4CF3E8B0307BFCAE6B0BF95868CBEDE4887BF5807C9BFCD29B5BF32CCF83F714F703FB18D873EA8004DBFD33BC03EC90D2EBEEECFE53EB6B3253FBEB74BBF965ACB3F2B33CBBFF06F22BFE0E4263FD8B7A7BF658AE63F51C974BF9AC1B0BF254317BE40D4CB3F9509F5BE9DAFA9BE5A3696BF688D3CBFCC31083F6663843FC62D983E36740B3F0F039DBFA4C2CD3F3F6C93BF8B6B413F1BA62ABF8F999E3FAEC1853EB5615C3F870381BF52FB833EF0FA0240F65E2EBF3959693FECDB5E3DBDAD9ABDA6C84C3F409F9BBE5BA630BF113F853F9D2F93BF124602BE5740C23E958259BF45A89C3E101EAE3D7CFC683FDCE5F9BF63B1703FC509EE3E840A40BFFE0494BE2DFC90BD2B4FE23BB601863E0F4129BF2C05373F8351633E82742A3FD7AEA9BE6918CCBE6B5264BE8694843F57AD26C02E773DBFF2A02CBF55E1EA3F40F58CBEBC416BBE88FBB53F97FE85BF3DDAF63EC393093FB498883F426F7F3F5CBC4A3B81AB82BF3F3543BFB2547E3F7DBAFB3F48A681BEE190C6BF169A4D3EB0AF87BF8B0277BFC7E8E9BF7F4D2F3FDBDAACBF112B633F93265C3EE2C5C33D0E01043EFBC230BF4EA5E4BD7EE57FBE34DAAF3D25B2D93E0094A63F5607EFBFEA4E6A3E8F00EBBF11E937BF24D319BD2FA33ABFABD6553E7452D0BF1519F6BF44E9983FD2AE8CBF87F34F3F224189BF3DC8173F5E7D9A3FF9D5A3BEE4C79A3EDE1508BD200E1D3E9A7E233F330BB3BE90DDB33EC687493FC504A73F7BBDDABE3E5DF4BEBF047CBF39819FBF973680BF692C99BFC5BC8E3F748B0CC09F482CBE51DED6BDB7091FBE745DA8BD3055073F8C720A3FF52AFCBE2083CA3E7CFCC4BFA9ED073FD04B18C0C708243F4D48593E374B0F3F0B2C87BD6A7440BE79C0B43F562FBD3F3F34CCBF31F10D407607F9BE77A981BCF4E1B1BE04A280BE8D36183E8D92C6BD0023D73E9C94D0BF7106D53E2E51B5BEB89DACBE6F66FE3F81A33C3E93420CBFBF5865BF04445E3E115A9FBF8363B2BFAC85843D2DA6743EDD608C3E319A1EBF2154C6BF2AB19B3F60A321BFF873423F00F57EBFDE19073F6F9114BF586374BF7618773FE25649BF21D1693F323BA43C68F1BCBF5D6A953F6F8D303FB7961FBEFFC0D1BE343B32BFF61928BF3A72BB3F4DB3BF3ED0954FBF139E65BE261C993D5DF1FCBA68D747BFA6B5F83D774E763E2058FB3E3EB80E40FE444DBFBF7B9BBF8EE4A7BEF05456BE8D8B353FA1ECDCBEC119A63BF9B75FBF698AB63F23DC91BE67C8403EFDA1B2BEB8E0F9BF7E3FEEBFCB70443E5B3DE63FB0364E3FAD3ADA3CEF68C6BFBE31F73FB76B66BF1563583F263D7B3F4B431A3F5D81213F53B9EA3FC3DB02BF0AAAA03F59B50FC0A82FB6BF3469AEBFB5D0FF3E95538EBF6A8268BFB82A323F8158AFBE3ABF91BF7416E1BE004C903EBA2213BFCA1E823DA7B3433FDA4B9D3F359194BE5BEAC3BFAD429BBF284EFE3E949A88BF7CCB1FBF8A2D02C0F84E67BE659D3E3F20FAC93F6D3A9ABFCD1D88BE403862BEA42523BEAD8B1E3E051791BF23AC3B3D1381A2BE4EB3DC3FF0BFD93F5EC2833FB24E33C09F5D60BFD0B9B1BED2A51440D3D238BF041071BEDA68953F1F2F073F4A90F03F896AE2BFCD1B62BF6804EF3EB85E883FA69B49BF570C7EBFB771893F20CAEC3F63B0F0BEC2436A3FD2984D3F40BC243EB8651EC01A688B3EB48ACD3F5136073F413AD2BEA7640C3F91A58B3F4199CD3DAF0AD63E70F79C3F6E7C53BF31B179BE7A9C83BF4785B63F61C9943E6AC8EFBF4F968CBFA248733F75E5F53E6678933FD138883F0345D7BD9569363F0E96CEBFBB814CBE644C923E18B0BF3ECFCAA8BFD3C337BE59B31F3E5F83E7BFEEBE6BBE0340A33FD24EA0BF0578FCBF94A3C43D414938BEBF3711BF7E1B77BF5C270B3FBCF43ABDA49D8C3ED89D95BECDA42D3EC0E4DA3E868B2F3D8454A73F0D3B123E0FFA18BFCF01BD3F3E6AE4BE232CABBF15AC44BF97503ABF5252DA3CA0F8A9BE932C50BCE29D99BFB2AC96BF"
    }
  }
#-}
