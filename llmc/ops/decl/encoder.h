// encoder -- token and position embedding.
//
//     out[n] = wte[tokens[n]] + wpe[t0 + n % T]        where v0 <= tokens[n] < v0 + V, else 0
//
// v0 is the first row of this rank's part of wte: summed over the parts, the rows are whole.

struct Encoder {
    const int32_t* tokens;    // (N)
    int v0, V;                // first row of wte here, number of rows here
    int N, T, C;              // tokens, tokens of a sequence, channels
    int t0;                   // position of a sequence's first token
};

void encoder_forward(floatX* out,           // (N, C)
                     const floatX* wte,     // (V, C)
                     const floatX* wpe,     // (maxT, C)
                     const Encoder& e);

// dwte += and dwpe +=, in the order of the tokens: deterministic, without atomics.
void encoder_backward(real* dwte,           // (V, C)
                      real* dwpe,           // (maxT, C)
                      const floatX* dout,   // (N, C)
                      const Encoder& e);
