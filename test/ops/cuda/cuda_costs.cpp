// An op's stated bytes equal its kernels' traffic. Ops of several kernels also move partial sums
// in scratch, and the gradient of the embedding is read once for tokens and once for positions.
#include <functional>

#include "test/cuda.h"

#ifdef CUDA_EMU
namespace PRECISION {

static constexpr int N = 192, C = 768, T = 96, V = 5000, Vp = 5120;
static constexpr int kWide = int(cuda::kGpuDbiasBytes / sizeof(floatX)) + 512;

struct Op {
    const char* name;
    int kernels;
    std::function<void()> run;
    double again = 0;           // bytes that are read a second time
};

// Memory large enough for any tensor here, by type.
struct Rooms {
    OnDevice<floatX> x, y, z, w;
    OnDevice<real> a, b, c, d;
    OnDevice<double> sums;
    OnDevice<int32_t> ids;
    OnDevice<cuda::GradientState> state;
    OnDevice<Spread> spread;
    static constexpr size_t kSize = size_t(N) * Vp;
    Rooms()
        : x(std::vector<floatX>(kSize)), y(std::vector<floatX>(kSize)), z(std::vector<floatX>(kSize)),
          w(std::vector<floatX>(kSize)), a(std::vector<real>(kSize)), b(std::vector<real>(kSize)),
          c(std::vector<real>(kSize)), d(std::vector<real>(kSize)), sums(std::vector<double>(N)),
          ids(some_ids()), state({{.norm = 1, .scale = 1, .finite = 1}}), spread(std::vector<Spread>(1)) {}
    static std::vector<int32_t> some_ids() {
        std::vector<int32_t> ids(N);
        for (int i = 0; i < N; i++) ids[size_t(i)] = i * 7 % V;         // no id twice
        return ids;
    }
};

// Wide rows of dx are read again.
static Op norm_with_bias(Rooms& r, const cuda::Layernorm& t, int rows, int width) {
    return {"layernorm_backward", 2,
            [=, &r] { cuda::layernorm_backward({r.x, r.a, r.b, r.c + N}, r.y, t, rows, width); }};
}

static Op update_of_moments_in_bf16(Rooms& r, const cuda::Adamw& update, const cuda::AdamwTensor& tensor) {
    cuda::Adamw rounded = update;
    rounded.m = r.x, rounded.v = r.y, rounded.moments = DType::BF16;
    return {"adamw_update", 1, [=, &tensor] { cuda::adamw_update(rounded, &tensor, 1); }};
}

static Op update_without_masters(Rooms& r, cuda::Adamw update, const cuda::AdamwTensor& tensor) {
    if (sizeof(floatX) == 2) update.master = nullptr;
    return update_of_moments_in_bf16(r, update, tensor);
}

static std::vector<Op> ops_of(Rooms& r) {
    const size_t count = size_t(N) * C;
    const cuda::Encoder e{.tokens = r.ids, .v0 = 0, .V = V, .N = N, .T = T, .C = C, .t0 = 0};
    const cuda::Classifier k{.losses = r.a, .logits = r.x, .stats = nullptr, .targets = r.ids, .N = N, .V = V,
                             .Vp = Vp, .v0 = 0, .slices = 1};
    const cuda::Layernorm norm{.x1 = r.x, .y = r.y, .mean = r.a, .rstd = r.b, .x = r.x, .r = r.z, .bias = r.w,
                               .w = r.w + C, .b = r.w + 2 * C};
    const cuda::Rotary rotary{.qkv = r.x, .before = r.y, .table = r.a, .q_gain = r.w, .k_gain = r.w + 64,
                              .norm = QkNorm::Before, .eps = 1, .N = N, .T = T, .NH = 4, .KV = 4, .D = 64,
                              .stride = C, .t0 = 0};
    const cuda::Mix mix{.out = r.x, .in = r.y, .x = r.x, .r = r.z, .bias = r.w, .x0 = r.w + C, .keep = r.w,
                        .add = r.w + 1};
    const cuda::ValueRows values{.v = r.x, .h = r.y, .gatew = r.w, .table = r.z, .tokens = r.ids, .N = N,
                                 .C = C, .V = V, .KV = 4, .D = 64, .stride = C};
    const double gates_again = double((N + 4) * kGateInputs * sizeof(floatX));
    cuda::Layernorm alone = norm;
    alone.r = alone.bias = nullptr, alone.x1 = nullptr;
    cuda::Layernorm back = norm;
    back.x1 = r.z, back.mean = r.c, back.rstd = r.d;
    static const cuda::AdamwTensor tensor{.start = 0, .count = count, .global = 0, .lr = 1, .decay = 0};
    const cuda::Adamw update{.param = sizeof(floatX) == sizeof(real) ? nullptr : r.w.p, .master = r.a,
                             .m = r.b, .v = r.c, .grad = r.d, .state = r.state, .beta1 = 1,
                             .beta2 = 1, .eps = 1, .step = 1, .stochastic = false, .seed = 1};
    return {
        {"layernorm_forward with residual", 1, [=] { cuda::layernorm_forward(norm, N, C); }},
        {"layernorm_forward", 1, [=] { cuda::layernorm_forward(alone, N, C); }},
        {"layernorm_backward", 2, [=, &r] { cuda::layernorm_backward({r.x, r.a, r.b}, r.y, back, N, C); }},
        norm_with_bias(r, back, N, C),
        norm_with_bias(r, back, N / 4, kWide),
        {"add_residual", 1, [&r] { cuda::add_residual(r.x, r.y, r.z, r.w, N, C); }},
        {"gelu_backward", 1, [&r] { cuda::activation_backward(r.x, r.y, r.z, Activation::Gelu, N, C); }},
        {"swiglu_backward", 1,
         [&r] { cuda::activation_backward(r.x, r.y, r.z, Activation::Swiglu, N, C / 2); }},
        {"gelu_forward", 1, [&r] { cuda::activation_forward(r.x, r.y, Activation::Gelu, N, C); }},
        {"relu2_forward", 1, [&r] { cuda::activation_forward(r.x, r.y, Activation::Relu2, N, C); }},
        {"swiglu_forward", 1, [&r] { cuda::activation_forward(r.x, r.y, Activation::Swiglu, N, C / 2); }},
        {"rotary_forward", 1, [=] { cuda::rotary_forward(rotary); }},
        {"rotary_backward", 2, [=, &r] { cuda::rotary_backward(r.z, r.c, r.d, rotary); }},
        {"shortcut_forward", 1, [=] { cuda::shortcut_forward(mix, N, C); }},
        {"shortcut_backward", 2,
         [&r] { cuda::shortcut_backward({r.x, r.y, r.a, r.b}, r.z, r.w, r.w, r.w, N, C); }},
        {"values_forward", 1, [=] { cuda::values_forward(values); }},
        {"values_backward", 2, [=, &r] { cuda::values_backward({r.w, r.a, r.x + C, r.b}, values); },
         gates_again},
        {"bias_backward", 2, [&r] { cuda::bias_backward(r.a, r.x, N, C); }},
        {"classifier_forward", 1, [=] { cuda::classifier_forward(k); }},
        {"classifier_forward_backward", 1, [=] { cuda::classifier_forward_backward(k, 1); }},
        {"encoder_forward", 1, [&r, e] { cuda::encoder_forward(r.x, r.y, r.z, e); }},
        {"encoder_backward", 2, [&r, e] { cuda::encoder_backward(r.a, r.b, r.x, e); },
         double(count) * sizeof(floatX)},
        {"sum_of_squares", 1, [&r, count] { cuda::sum_of_squares(r.a, r.b, count); }},
        {"adamw_update", 1, [=] { cuda::adamw_update(update, &tensor, 1); }},
        update_of_moments_in_bf16(r, update, tensor), update_without_masters(r, update, tensor),
        {"spread", 2, [&r, count] { cuda::spread(r.spread, r.a, count); }},
        {"spread_of_change", 2, [&r, count] { cuda::spread_of_change(r.spread, r.a, r.b, count); }},
        {"spread_of_stored", 2, [&r, count] { cuda::spread_of_stored(r.spread, r.x, count); }},
        {"accumulate", 1, [&r, count] { cuda::accumulate(r.a, r.b, count); }},
        {"round_to", 1, [&r, count] { cuda::round_to(r.x, r.a, count); }},
    };
}

TEST(bytes_that_ops_state_are_those_that_kernels_move) {
    if (kAgain) return test::skip("counted by make test");
    const CudaScratch lent;
    Rooms rooms;
    for (const Op& op : ops_of(rooms)) {
        emulator::settings.count = true;
        emulator::reset_counts();
        const Walk walk = walk_of({.backend = Target::Cuda, .threads = 1}, op.run, true);
        emulator::settings.count = false;
        double moved = 0;
        for (const auto& [kernel, count] : emulator::counts()) moved += double(count.bytes);
        EXPECT(walk.entries.size() == 1, "%s: %zu ops are recorded", op.name, walk.entries.size());
        const Cost& c = walk.of(walk.entries[0]);
        const double stated = double(c.read + c.written) + op.again;
        const double room = op.kernels == 1 ? 0 : 8 * double(c.needs.scratch);
        EXPECT(!strcmp(c.name, op.name), "%s is recorded as %s", op.name, c.name);
        EXPECT(moved >= 0.999 * stated && moved <= 1.001 * stated + room,
               "%s states %.0f bytes and moves %.0f", op.name, stated, moved);
    }
}

}  // namespace PRECISION
#endif
