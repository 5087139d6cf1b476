// needs -- memory of ops on CPUs besides their arguments, where code of the backend decides: oneDNN builds a
// product and tells its scratch. Other needs are formulas beside the costs.
namespace needs {
Needs product_forward(int threads, int N, int C, int OC, bool bias);
Needs product_activation_forward(int threads, Activation f, int N, int C, int F, bool bias);
Needs product_backward_input(int threads, int N, int C, int OC);
Needs product_activation_backward_input(int threads, int N, int F, int OC);
Needs product_backward_weight(int threads, int N, int C, int OC);
Needs gram(int threads, int rows, int cols);
Needs attention(int threads, int Tq, int Tk, int D, int group);     // group: query heads of a key head
Needs classifier(int threads, int V);
Needs any_rows(const Target& t);        // room for products of any number of rows, as prompts have
}  // namespace needs
