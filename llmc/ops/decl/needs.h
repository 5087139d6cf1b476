// needs -- memory of ops besides their arguments, on either backend, by the sizes of the op.
//
// On CPUs oneDNN builds the product, and tells its scratch; on GPUs the sizes alone decide.
namespace needs {
Needs product_forward(const Target& t, int N, int C, int OC, bool bias);
Needs product_activation_forward(const Target& t, Activation f, int N, int C, int F, bool bias);
Needs product_backward_input(const Target& t, int N, int C, int OC);
Needs product_activation_backward_input(const Target& t, int N, int F, int OC);
Needs product_backward_weight(const Target& t, int N, int C, int OC, bool bias);
Needs gram(const Target& t, int rows, int cols);
Needs bias_backward(const Target& t, int N, int OC);
// group: query heads of a key head
Needs attention_forward(const Target& t, int Tq, int Tk, int D, int group);
Needs attention_backward(const Target& t, int B, int Tq, int Tk, int NH, int D, int group);
Needs classifier_forward_backward(const Target& t, int V);
Needs encoder_backward(const Target& t, int N, int C);
Needs rotary_backward(const Target& t, int N, int D);          // with gains
Needs layernorm_backward(const Target& t, int N, int C, int outputs);     // outputs: how many of dw and db
Needs shortcut_backward(const Target& t, int N);
Needs values_backward(const Target& t, int N, int KV);
Needs spread(const Target& t, size_t count);
Needs any_rows(const Target& t);        // room for products of any number of rows, as prompts have
}  // namespace needs
