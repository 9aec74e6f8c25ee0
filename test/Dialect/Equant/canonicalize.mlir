// RUN: easyquant-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @concat_of_one(
// CHECK-SAME:    %[[A:.*]]: !equant.weight<2x8, #equant.scheme<i4, symmetric, channel>>)
// CHECK-NEXT:    return %[[A]]
!w = !equant.weight<2x8, #equant.scheme<i4, symmetric, channel>>
func.func @concat_of_one(%a: !w) -> !w {
  %b = equant.concat %a : (!w) -> !w
  return %b : !w
}

// CHECK-LABEL: func.func @concat_of_concat(
// CHECK-SAME:    %[[A:[^:]*]]: tensor<1xf32>, %[[B:[^:]*]]: tensor<2xf32>, %[[C:[^:]*]]: tensor<3xf32>)
// CHECK-NEXT:    %[[R:.*]] = equant.concat %[[A]], %[[B]], %[[C]] : (tensor<1xf32>, tensor<2xf32>, tensor<3xf32>) -> tensor<6xf32>
// CHECK-NEXT:    return %[[R]]
func.func @concat_of_concat(%a: tensor<1xf32>, %b: tensor<2xf32>, %c: tensor<3xf32>) -> tensor<6xf32> {
  %d = equant.concat %b, %c : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  %e = equant.concat %a, %d : (tensor<1xf32>, tensor<5xf32>) -> tensor<6xf32>
  return %e : tensor<6xf32>
}
