// What is no weight, no part of one and no rows of codes.

// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{weights have static scales, found #equant.scheme<i8, symmetric, token, dynamic>}}
func.func private @f(!equant.weight<40x24, #equant.scheme<i8, symmetric, token, dynamic>>)

// -----

// expected-error @below {{a weight has 1 to 2147483647 rows and columns, and at most 4398046511104 elements, found 2147483647x2147483647}}
func.func private @f(!equant.weight<2147483647x2147483647, #equant.scheme<i8, symmetric, channel>>)

// -----

// expected-error @below {{a weight is a matrix: expected rows x columns, found 1 dimensions}}
func.func private @f(!equant.weight<40, #equant.scheme<i8, symmetric, channel>>)

// -----

// expected-error @below {{expected a #equant.scheme, found 8 : i64}}
func.func private @f(!equant.weight<40x24, 8>)

// -----

// expected-error @below {{expected a #equant.layout, found 8 : i64}}
func.func private @f(!equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, 8>)

// -----

// expected-error @below {{packed weights must have scales per channel or per group, found #equant.scheme<i8, symmetric, tensor>}}
func.func private @f(!equant.weight<40x24, #equant.scheme<i8, symmetric, tensor>, #equant.layout<panel>>)

// -----

// expected-error @below {{cannot be packed as #equant.layout<m16n8k32>: weights as f4E2M1FN, groups of 32, f8E8M0FNU scales: the GPU kernels on codes take integers, tables of int8 values or f8E4M3FN}}
func.func private @f(!equant.weight<40x64, #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>, #equant.layout<m16n8k32>>)

// -----

// expected-error @below {{cannot be packed as #equant.layout<panel>: weights as int3 symmetric, groups of 12: the CPU kernels take group sizes that are multiples of 8 (such as 16)}}
func.func private @f(!equant.weight<40x24, #equant.scheme<i3, symmetric, group = 12>, #equant.layout<panel>>)

// -----

// expected-error @below {{cannot be packed as #equant.layout<m16n8k16>: weights as int4 symmetric, groups of 24, ui6 scales: the GPU kernels take group sizes that are 16 or multiples of 32 (such as 32)}}
func.func private @f(!equant.weight<40x256, #equant.scheme<i4, symmetric, group = 24, scale = ui6>, #equant.layout<m16n8k16>>)

// -----

// expected-error @below {{expected codes of i8, of f8E4M3FN with a scale a row, or of f4E2M1FN in groups of 16 with scales of f8E4M3FN and an outer one, found #equant.scheme<i4, symmetric, token, dynamic>}}
func.func private @f(!equant.rows<?x24, #equant.scheme<i4, symmetric, token, dynamic>>)

// -----

// expected-error @below {{input must be quantized per token, dynamic and symmetric but for groups, per tensor with a constant scale, or, of codes that are no integers, in groups with dynamic and outer scales, found #equant.scheme<i8, symmetric, channel>}}
func.func private @f(!equant.rows<?x24, #equant.scheme<i8, symmetric, channel>>)

// -----

// expected-error @below {{expected a number of rows that run time gives, and columns: ?xK}}
func.func private @f(!equant.rows<4x24, #equant.scheme<i8, symmetric, token, dynamic>>)

// -----

// expected-error @below {{sums are of a group of columns, or, if that is 0, of the row, found -1}}
func.func private @f(!equant.rows<?x24, #equant.scheme<i8, symmetric, token, dynamic>, sums = -1>)

// -----

// expected-error @below {{equant.offset of a weight is an array<i64: ...> of 2 bytes that are not negative, one for each of its parts; found 0 : i64}}
ml_program.global private @w(#ml_program.extern : !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>) : !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>> {equant.offset = 0 : i64}

// -----

func.func @codes(%q: tensor<4x24xi4>, %s: tensor<4x1xf32>) {
  // expected-error @below {{codes must be 'tensor<4x24xi8>' for '!equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>', found 'tensor<4x24xi4>'}}
  equant.from_codes %q scale(%s) : (tensor<4x24xi4>, tensor<4x1xf32>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @concat_columns(%a: !equant.weight<2x8, #equant.scheme<i8, symmetric, channel>>, %b: !equant.weight<3x9, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{operand '!equant.weight<3x9, #equant.scheme<i8, symmetric, channel>>' differs from the result '!equant.weight<5x8, #equant.scheme<i8, symmetric, channel>>' in more than its rows}}
  equant.concat %a, %b : (!equant.weight<2x8, #equant.scheme<i8, symmetric, channel>>, !equant.weight<3x9, #equant.scheme<i8, symmetric, channel>>) -> !equant.weight<5x8, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @concat_rows(%a: !equant.weight<2x8, #equant.scheme<i8, symmetric, channel>>, %b: !equant.weight<3x8, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{operands have 5 rows together, but the result has 6}}
  equant.concat %a, %b : (!equant.weight<2x8, #equant.scheme<i8, symmetric, channel>>, !equant.weight<3x8, #equant.scheme<i8, symmetric, channel>>) -> !equant.weight<6x8, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, tensor>
func.func @concat_scales(%a: !equant.weight<2x8, #t>) {
  // expected-error @below {{scales per tensor have no place below each other, found '!equant.weight<4x8, #equant.scheme<i8, symmetric, tensor>>'}}
  equant.concat %a, %a : (!equant.weight<2x8, #t>, !equant.weight<2x8, #t>) -> !equant.weight<4x8, #t>
  return
}

// -----

#g = #equant.scheme<i4, symmetric, group = 8>
func.func @cut_group(%w: !equant.weight<16x24, #g>) {
  // expected-error @below {{columns 4 to 19 cut a group of 8; expected a part that begins and ends at multiples of it}}
  equant.slice %w [0, 4] [16, 16] : !equant.weight<16x24, #g> -> !equant.weight<16x16, #g>
  return
}

// -----

#g = #equant.scheme<i4, symmetric, group = 8>
func.func @outside(%w: !equant.weight<16x24, #g>) {
  // expected-error @below {{expected two offsets and two sizes of a part of '!equant.weight<16x24, #equant.scheme<i4, symmetric, group = 8>>', found [8, 0] and [16, 24]}}
  equant.slice %w [8, 0] [16, 24] : !equant.weight<16x24, #g> -> !equant.weight<16x24, #g>
  return
}

// -----

#g = #equant.scheme<i4, symmetric, group = 8>
func.func @uneven(%w: !equant.weight<16x24, #g>) {
  // expected-error @below {{expected one of equal parts of '!equant.weight<16x24, #equant.scheme<i4, symmetric, group = 8>>' along axis 1, whole groups of it, found '!equant.weight<16x12, #equant.scheme<i4, symmetric, group = 8>>'}}
  equant.all_slice %w on @tensor_parallel axis 1 : !equant.weight<16x24, #g> -> !equant.weight<16x12, #g>
  return
}

// -----

func.func @long_bias(%x: tensor<?x8xf32>, %b: tensor<9xf32>) {
  // expected-error @below {{bias has 9 elements, but the result has 8 columns}}
  equant.add_bias %x, %b : tensor<?x8xf32>, tensor<9xf32>
  return
}

// -----

func.func @f(%w: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{expected the 40x24 values of the weight, found 'tensor<24x40xf32>'}}
  equant.dequantize %w : !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>> -> tensor<24x40xf32>
  return
}
