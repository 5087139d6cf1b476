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

void encoder_forward(floatX* out, const floatX* wte, const floatX* wpe, const Encoder& e);   // (N, C) (V, C) (maxT, C)

// dwte += and dwpe +=, in the order of the tokens: deterministic, without atomics.
void encoder_backward(real* dwte, real* dwpe, const floatX* dout, const Encoder& e);         // (V, C) (maxT, C) (N, C)
