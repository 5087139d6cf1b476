// Declarations in the namespace of each precision, within a room's.
#pragma once

#define IN_EACH_PRECISION(room, ...)            \
    namespace fp32::inline room { __VA_ARGS__ } \
    namespace bf16::inline room { __VA_ARGS__ } \
    namespace fp64::inline room { __VA_ARGS__ }
