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

namespace easyquant::lm {

/// `lm.rope_table` of a table with these parameters.
mlir::DictionaryAttr ropeTableAttr(mlir::MLIRContext *context, const numerics::RopeParams &params);

/// The parameters that `lm.rope_table` of a tensor<P x headDim/2 x 2 x f32> states.
/// InvalidArgument, saying what is wrong, on anything that ropeTableAttr() does not make.
Result<numerics::RopeParams> ropeParams(mlir::DictionaryAttr attribute, int64_t headDim);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_IR_ROPETABLE_H
