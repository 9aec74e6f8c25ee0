//===- RopeTable.h - The attribute lm.rope_table ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_ROPETABLE_H
#define EASYQUANT_DIALECT_LM_IR_ROPETABLE_H

#include "easyquant/Numerics/Rope.h"
#include "easyquant/Support/Result.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace easyquant::lm {

/// `lm.rope_table` of a table with these parameters.
mlir::DictionaryAttr ropeTableAttr(mlir::MLIRContext *context, const numerics::RopeParams &params);

/// The parameters that `lm.rope_table` of a tensor<P x R/2 x 2 x f32> states, R dimensions turning.
/// InvalidArgument, saying what is wrong, on anything that ropeTableAttr() does not make, and on a
/// table larger than numerics::checkRope allows. Computes none of it.
Result<numerics::RopeParams> ropeParams(mlir::DictionaryAttr attribute,
                                        mlir::RankedTensorType table);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_IR_ROPETABLE_H
