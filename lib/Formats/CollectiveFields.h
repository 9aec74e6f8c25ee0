//===- CollectiveFields.h - The fields of Collective ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_COLLECTIVEFIELDS_H
#define EASYQUANT_LIB_FORMATS_COLLECTIVEFIELDS_H

#include "easyquant/Formats/Collective.h"
#include "easyquant/Support/FieldReader.h"

namespace easyquant::formats {

template <typename Fields> void mapFields(Fields &fields, Collective &collective) {
  fields.required("call", collective.call);
  fields.required("reduction", collective.reduction);
  fields.required("type", collective.type);
  fields.required("columns", collective.columns, Bounds{1, kMaxInt32});
  fields.required("site", collective.site);
  const bool isReduce = collective.call == CollectiveCall::AllReduce;
  const char *reduction =
      collective.reduction ? kReductionNames[static_cast<size_t>(*collective.reduction)] : "";
  fields.checkText(isReduce == collective.reduction.has_value(), "reduction", reduction,
                   "sum, max or min of an all_reduce, else null");
  fields.checkText(collective.type == "f32" || collective.type == "i32", "type", collective.type,
                   "f32 or i32");
}

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_COLLECTIVEFIELDS_H
