//===- EquantDialect.td - Quantization dialect -------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT

include "mlir/IR/OpBase.td"

def Equant_Dialect : Dialect {
  let name = "equant";
  let cppNamespace = "::easyquant::equant";
  let summary = "Quantization as operations on values";
  let description = [{
    The `equant` dialect carries quantization from the choice of a scheme to the packed weights of an artifact. A scheme is
    an attribute, `#equant.scheme<i4, symmetric, group = 128>`; scales and codes are ordinary SSA values, so that scales of
    any size, constant or computed at run time, move through one set of ops. `choose_qparams`, `quantize` and `dequantize`
    stay ops to the end: on constants they are evaluated, on run-time values kernels are generated for them.

    Attributes of the module: `equant.recipe` says what was asked for, `equant.report` what became of each site; both are
    written by the passes and read by the manifest writer. A global with `equant.offset` lies at that byte of the
    artifact's data section.

    `docs/rationale/Equant.md` says why.
  }];
  let dependentDialects = ["::easyquant::lm::LMDialect"];
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes();";
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT
