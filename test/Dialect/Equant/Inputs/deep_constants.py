"""Writes a linear whose weight lies below a hundred thousand equant.scale or equant.concat."""

import sys

source, kind = sys.argv[1:]
N = 100_000
print(f'module attributes {{lm.source = "{source}"}} {{')
for name, shape in (("model.layers.0.self_attn.q_proj.weight", "16x16"), ("model.norm.weight", "16")):
    print(f"ml_program.global private @{name}(#ml_program.extern : tensor<{shape}xf32>) : tensor<{shape}xf32>")
print("func.func @forward(%x: tensor<?x16xf32>, %w: !equant.weight<16x16, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x16xf32> {")
print("%c0 = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>")
print("%f = ml_program.global_load_const @model.norm.weight : tensor<16xf32>")
if kind == "scale":
    for i in range(N):
        print(f"%c{i + 1} = equant.scale %c{i} by %f {{axis = 1 : i64}} : tensor<16x16xf32>, tensor<16xf32>")
    print(f'%y = lm.linear %x, %c{N} {{site = "q"}} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>')
else:
    weight = "!equant.weight<16x16, #equant.scheme<i8, symmetric, channel>>"
    print(f"%q0 = equant.concat %w : ({weight}) -> {weight}")
    for i in range(N):
        print(f"%q{i + 1} = equant.concat %q{i} : ({weight}) -> {weight}")
    print(f'%y = equant.linear %x, %q{N} {{sites = ["q"]}} : (tensor<?x16xf32>, {weight}) -> tensor<?x16xf32>')
print("return %y : tensor<?x16xf32>\n}\n}")
