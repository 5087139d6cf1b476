// Nothing: kernels use base/dtype.h's bfloat16.
#pragma once
