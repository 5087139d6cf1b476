// matmul -- the linear layer, and the linear layer followed by GELU.
//
//     out = x w^T + bias                      weights are (OC, C): a row per output feature
//     act = gelu(pre), pre = x w^T + bias     gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))
//
// GELU reads the stored, rounded pre-activation, panel by panel while it is in cache; gelu_forward, which
// recomputation calls, therefore gives the same bits.

void matmul_forward(floatX* out,            // (N, OC)
                    const floatX* x,        // (N, C)
                    const floatX* w,        // (OC, C)
                    const floatX* bias,     // (OC), or null
                    int N, int C, int OC);

void matmul_gelu_forward(floatX* act,           // (N, OC)
                         floatX* pre,           // (N, OC)
                         const floatX* x,       // (N, C)
                         const floatX* w,       // (OC, C)
                         const floatX* bias,    // (OC), or null
                         int N, int C, int OC);

void gelu_forward(floatX* act, const floatX* pre, size_t count);

// dx = dout w
void matmul_backward_input(floatX* dx,              // (N, C)
                           const floatX* dout,      // (N, OC)
                           const floatX* w,         // (OC, C)
                           int N, int C, int OC);

// dpre = (dout w) * gelu'(pre): through the matmul whose input was gelu(pre)
void matmul_gelu_backward_input(floatX* dpre,           // (N, C)
                                const floatX* dout,     // (N, OC)
                                const floatX* w,        // (OC, C)
                                const floatX* pre,      // (N, C)
                                int N, int C, int OC);

// dw += dout^T x, accumulated in real
void matmul_backward_weight(real* dw,               // (OC, C)
                            const floatX* dout,     // (N, OC)
                            const floatX* x,        // (N, C)
                            int N, int C, int OC);

// db += column sums of dout
void bias_backward(real* db,                // (OC)
                   const floatX* dout,      // (N, OC)
                   int N, int OC);

// both at once
void matmul_backward_weight_bias(real* dw,               // (OC, C)
                                 real* db,               // (OC)
                                 const floatX* dout,     // (N, OC)
                                 const floatX* x,        // (N, C)
                                 int N, int C, int OC);
