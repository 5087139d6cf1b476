// How the variants of kernels that memory bounds are timed and tried: layernorm, classifier, AdamW.
#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/variants.h"

namespace fp64::cpu {
#include "llmc/ops/decl/adamw.h"
#include "llmc/ops/decl/classifier.h"
#include "llmc/ops/decl/layernorm.h"
#include "llmc/ops/decl/memory.h"
}  // namespace fp64::cpu

namespace PRECISION {
namespace cuda {

namespace simple = ::fp64::cpu;

static constexpr float kRate = 1e-3f, kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kDecay = 0.1f;

static Sized forward_of(int C) { return {Part::LayernormForward, {C}}; }
static Sized backward_of(int C) { return {Part::LayernormBackward, {C}}; }
static Sized classifier_of(int Vp) { return {Part::Classifier, {Vp}}; }
static constexpr Sized kUpdate = {Part::AdamwUpdate};

namespace {
// What the ops work on, N rows of C channels and `rows` of Vp logits, which are long; as many elements are
// updated as rows have. All of it is random, but the integers and what is squared.
struct StreamingTensors {
    int N, C, Vp, rows;
    floatX *x, *r, *x1, *y, *dx, *vectors, *param, *logits;
    float *mean, *rstd, *dw, *db, *master, *m, *v, *grad, *losses;
    int32_t* targets;
    GradientState* state;
    size_t bytes = 0, random = 0;

    StreamingTensors(const ScratchSizes& s, int most_rows, void* memory)
        : N(std::min(s.N, most_rows)), C(s.C), Vp(s.Vp), rows(std::min(s.chunk, most_rows / 4)) {
        const size_t values = count();
        const auto take = [&]<class T>(T*& p, size_t count) {
            p = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + bytes);
            bytes += scratch_size(count * sizeof(T));
        };
        take(x, values), take(r, values), take(x1, values), take(y, values), take(dx, values);
        take(vectors, 3 * size_t(C)), take(param, values), take(logits, size_t(rows) * size_t(Vp));
        take(master, values), take(grad, values);
        random = bytes;
        take(m, values), take(v, values), take(dw, size_t(C)), take(db, size_t(C));
        take(mean, size_t(N)), take(rstd, size_t(N)), take(losses, size_t(rows));
        take(targets, size_t(rows)), take(state, 1);
    }
    size_t count() const { return size_t(N) * size_t(C); }

    void fill() const {
        fill_with_normals(x, random);
        set_zero(m, bytes - random);
        const GradientState finite = {.norm = 1, .scale = 1, .finite = 1};
        copy_to_device(state, &finite, sizeof finite);
    }
    Layernorm layernorm() const {
        return {.x1 = x1, .y = y, .mean = mean, .rstd = rstd, .x = x, .r = r, .bias = vectors,
                .w = vectors + C, .b = vectors + 2 * size_t(C)};
    }
    Classifier classifier() const {
        return {.losses = losses, .logits = logits, .stats = nullptr, .targets = targets, .N = rows, .V = Vp,
                .Vp = Vp, .v0 = 0, .parts = 1};
    }
    void update() const {
        const AdamwTensor all = {.start = 0, .count = count(), .global = 0, .decay = kDecay};
        adamw_update({.param = sizeof(floatX) == sizeof(float) ? nullptr : param, .master = master, .m = m,
                      .v = v, .grad = grad, .state = state, .lr = kRate, .beta1 = kBeta1, .beta2 = kBeta2,
                      .eps = kEps, .step = 1, .stochastic = false, .seed = 1}, &all, 1);
    }
};
}  // namespace

static constexpr int kAllRows = 1 << 30, kTrialRows = 32;

size_t streaming_tuning_bytes(const ScratchSizes& s) { return StreamingTensors(s, kAllRows, nullptr).bytes; }

std::vector<VariantTiming> streaming_tune(const ScratchSizes& s, void* memory, int repeats) {
    const StreamingTensors t(s, kAllRows, memory);
    std::vector<VariantTiming> timings;
    t.fill();
    tune_variants(timings, forward_of(t.C), kLayernormForwards, repeats,
                  [&] { layernorm_forward(t.layernorm(), t.N, t.C); });
    tune_variants(timings, backward_of(t.C), kLayernormBackwards, repeats, [&] {
        layernorm_backward(t.dx, t.dw, t.db, t.y, t.x1, t.vectors, t.mean, t.rstd, t.N, t.C);
    });
    tune_variants(timings, classifier_of(t.Vp), kClassifiers, repeats,
                  [&] { classifier_forward_backward(t.classifier(), 1); });
    tune_variants(timings, kUpdate, kAdamwUpdates, repeats, [&] { t.update(); });
    return timings;
}

bool streaming_tuned(const ScratchSizes& s) {
    return is_chosen(forward_of(s.C)) && is_chosen(backward_of(s.C)) && is_chosen(classifier_of(s.Vp)) &&
           is_chosen(kUpdate);
}

// ---------------------------------------------------------------------------------------------------------
// trial

size_t streaming_trial_bytes(const ScratchSizes& s) { return StreamingTensors(s, kTrialRows, nullptr).bytes; }

// BF16 is off by some 2^-9, FP32 by the order of its sums.
template <class T> static void expect_close(Trial& trial, const Sized& work, const char* tensor,
                                            const T* on_device, const Wide& want) {
    trial.expect(text_of(work), tensor, apart(wide(on_device, want.size()), want),
                 sizeof(T) == 2 ? 1e-2 : 1e-3);
}

// f(), an operation of the CPU's, which takes its scratch from the context, too.
template <class F> static void on_host(const StreamingTensors& t, F f) {
    const Context before = context;
    std::vector<std::byte> scratch(simple::scratch_bytes({.N = t.N, .T = t.N, .C = t.C, .NH = 1, .D = t.C,
                                                          .F = t.C, .chunk = t.rows, .Vp = t.Vp}));
    simple::lend_scratch(scratch.data(), scratch.size());
    f();
    context = before;
}

static void try_layernorm(Trial& trial, const StreamingTensors& t) {
    const size_t count = t.count(), C = size_t(t.C), N = size_t(t.N);
    const Wide x = wide(t.x, count), dy = wide(t.r, count), vectors = wide(t.vectors, 3 * C);
    Wide sum(count), y(count), mean(N), rstd(N), dx = wide(t.dx, count), dw(C), db(C);
    layernorm_forward(t.layernorm(), t.N, t.C);
    layernorm_backward(t.dx, t.dw, t.db, t.r, t.x1, t.vectors + C, t.mean, t.rstd, t.N, t.C);
    const Wide x1 = wide(t.x1, count);
    on_host(t, [&] {
        for (size_t i = 0; i < count; i++) sum[i] = x[i] + dy[i] + vectors[i % C];
        simple::layernorm_forward({.x1 = nullptr, .y = y.data(), .mean = mean.data(), .rstd = rstd.data(),
                                   .x = x1.data(), .r = nullptr, .bias = nullptr, .w = &vectors[C],
                                   .b = &vectors[2 * C]}, t.N, t.C);
        simple::layernorm_backward(dx.data(), dw.data(), db.data(), dy.data(), x1.data(), &vectors[C],
                                   mean.data(), rstd.data(), t.N, t.C);
    });
    expect_close(trial, forward_of(t.C), "x1", t.x1, sum);
    expect_close(trial, forward_of(t.C), "y", t.y, y);
    expect_close(trial, backward_of(t.C), "dx", t.dx, dx);
    expect_close(trial, backward_of(t.C), "dw", t.dw, dw);
    expect_close(trial, backward_of(t.C), "db", t.db, db);
}

static void try_classifier(Trial& trial, const StreamingTensors& t) {
    Wide logits = wide(t.logits, size_t(t.rows) * size_t(t.Vp)), losses(size_t(t.rows));
    const std::vector<int32_t> targets(size_t(t.rows));
    classifier_forward_backward(t.classifier(), 1);
    on_host(t, [&] {
        simple::classifier_forward_backward({.losses = losses.data(), .logits = logits.data(),
                                             .stats = nullptr, .targets = targets.data(), .N = t.rows,
                                             .V = t.Vp, .Vp = t.Vp, .v0 = 0, .parts = 1}, 1);
    });
    expect_close(trial, classifier_of(t.Vp), "losses", t.losses, losses);
    expect_close(trial, classifier_of(t.Vp), "gradient", t.logits, logits);
}

static void try_update(Trial& trial, const StreamingTensors& t) {
    const size_t count = t.count();
    Wide master = wide(t.master, count), m(count), v(count);
    const Wide grad = wide(t.grad, count);
    t.update();
    on_host(t, [&] {
        const simple::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
        const simple::AdamwTensor all = {.start = 0, .count = count, .global = 0, .decay = double(kDecay)};
        simple::adamw_update({.param = nullptr, .master = master.data(), .m = m.data(), .v = v.data(),
                              .grad = grad.data(), .state = &state, .lr = double(kRate),
                              .beta1 = double(kBeta1), .beta2 = double(kBeta2), .eps = double(kEps),
                              .step = 1, .stochastic = false, .seed = 1}, &all, 1);
    });
    expect_close(trial, kUpdate, "master", t.master, master);
    expect_close(trial, kUpdate, "m", t.m, m);
    expect_close(trial, kUpdate, "v", t.v, v);
    if (sizeof(floatX) != sizeof(float)) expect_close(trial, kUpdate, "param", t.param, master);
}

void streaming_try(const ScratchSizes& s, void* memory) {
    const StreamingTensors t(s, kTrialRows, memory);
    Trial trial;
    t.fill();
    try_layernorm(trial, t);
    try_classifier(trial, t);
    try_update(trial, t);
    trial.end();
}

}  // namespace cuda
}  // namespace PRECISION
