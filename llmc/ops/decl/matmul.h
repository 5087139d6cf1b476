// matmul -- the linear layer, and the linear layer followed by GELU.
//
//     out = x w^T + bias                      weights are (OC, C): a row per output feature
//     act = gelu(pre), pre = x w^T + bias     gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))
//
// GELU reads the stored, rounded pre-activation, panel by panel while it is in cache; gelu_forward, which recomputation calls,
// therefore gives the same bits.

void matmul_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC);   // (N, OC) (N, C) (OC, C) (OC) or null

void matmul_gelu_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC);   // act, pre: (N, OC)

void gelu_forward(floatX* act, const floatX* pre, size_t count);

// dx = dout w
void matmul_backward_input(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC);              // (N, C) (N, OC) (OC, C)

// dpre = (dout w) * gelu'(pre): through the matmul whose input was gelu(pre)
void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* w, const floatX* pre, int N, int C, int OC);   // dpre, pre: (N, C)

// dw += dout^T x, accumulated in real
void matmul_backward_weight(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC);               // (OC, C) (N, OC) (N, C)

// db += column sums of dout
void bias_backward(real* db, const floatX* dout, int N, int OC);                                                // (OC) (N, OC)
