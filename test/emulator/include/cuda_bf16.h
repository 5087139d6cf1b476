// Nothing: kernels use base/numbers/dtype.h's bfloat16.
#pragma once
