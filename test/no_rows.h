// Calls every operation on no rows or elements. No include guard and no includes of its own: each backend's
// namespace includes this file, as it includes the declarations of operations (llmc/ops/decl).
//
// sums and w: 4096 values each, and total: a value, on the device. The calls must leave every value
// unchanged.

inline void layernorm_on_no_rows(real* sums, floatX* w) {
    constexpr int C = 64;
    for (const NormKind kind : values_of<NormKind>()) {
        Layernorm t = {.kind = kind, .x1 = w, .y = w, .mean = sums, .rstd = sums, .x = w, .r = w, .bias = w,
                       .w = w, .b = w};
        layernorm_forward(t, 0, C);
        layernorm_backward({w, sums, sums + C, sums + 2 * C}, w, t, 0, C);
        t.r = t.bias = nullptr;
        layernorm_forward(t, 0, C);
    }
    add_residual(w, w, w, w, 0, C);
}

inline void matmul_on_no_rows(real* sums, floatX* w) {
    constexpr int C = 64, OC = 64;
    for (const floatX* bias : {static_cast<const floatX*>(nullptr), static_cast<const floatX*>(w)}) {
        matmul_forward(w, w, w, bias, 0, C, OC);
        for (const Activation f : values_of<Activation>())
            matmul_activation_forward(w, w, w, w, bias, f, 0, C, OC);
    }
    matmul_backward_input(w, w, w, 0, C, OC);
    for (const Activation f : values_of<Activation>()) {
        activation_forward(w, w, f, 0, OC);
        matmul_activation_backward_input(w, w, w, w, w, f, 0, C, OC);
    }
    matmul_backward_weight(sums, w, w, 0, C, OC);
    matmul_backward_weight_bias(sums, sums, w, w, 0, C, OC);
    bias_backward(sums, w, 0, OC);
}

inline void fp8_on_no_rows(real* sums, floatX* w) {
    constexpr int C = 64, OC = 64;
    static_assert(sizeof(real) >= sizeof(float));
    uint8_t* const codes = reinterpret_cast<uint8_t*>(w);
    float* const one = reinterpret_cast<float*>(sums);
    const Fp8Matrix of_w = {codes, one, Fp8::E4M3};
    for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2})
        matmul_fp8(w, {codes, one, format}, of_w, nullptr, 0, C, OC);
    merge_amaxes(one, nullptr, {one, 0, 1, 1, 1});
    transpose_codes(codes, codes, 0, C);
    for (const Activation f : values_of<Activation>()) activation_backward(w, w, w, f, 0, OC);
}

inline void rotary_on_no_rows(real* sums, floatX* w) {
    for (const QkNorm norm : {QkNorm::None, QkNorm::Before, QkNorm::After}) {
        const Rotary t = {.qkv = w, .before = w, .table = sums, .q_gain = norm == QkNorm::None ? nullptr : w,
                          .k_gain = norm == QkNorm::None ? nullptr : w, .norm = norm, .eps = 1, .N = 0,
                          .T = 1, .NH = 2, .KV = 1, .D = 32, .stride = 128, .t0 = 0};
        rotary_forward(t);
        rotary_backward(w, sums, sums, t);
    }
}

// No sequences, no queries, no heads.
inline void attention_on_no_rows(real* sums, floatX* w) {
    for (const auto& [B, Tq, NH] : {std::array{0, 5, 2}, {2, 0, 2}, {2, 5, 0}}) {
        const AttentionDims d = {.B = B, .Tq = Tq, .Tk = Tq, .NH = NH, .D = 32, .q_stride = 192,
                                 .kv_stride = 192, .q_offset = 0, .k_offset = 0};
        attention_forward(w, sums, w, w, w, d);
        attention_backward({.dq = w, .dk = w, .dv = w, .dout = w, .out = w, .lse = sums, .q = w, .k = w,
                            .v = w}, d);
    }
}

inline void classifier_on_no_rows(real* sums, floatX* w) {
    for (const int slices : {1, 2}) {
        const Classifier t = {.losses = sums, .logits = w, .stats = sums, .targets = nullptr, .N = 0, .V = 61,
                              .Vp = 64, .v0 = 0, .slices = slices};
        classifier_forward(t);
        classifier_forward_backward(t, 1);
        classifier_merge(t, sums);
        classifier_merge_backward(t, sums, 1);
    }
}

inline void vectors_on_no_elements(real* sums, floatX* w, double* total) {
    const floatX* const terms[] = {w, w};
    const real* const real_terms[] = {sums, sums};
    round_to(w, sums, 0);
    accumulate(sums, sums, 0);
    copy(w, w, 0);
    copy_rows(w, {.from = w, .stride = 8, .out_stride = 8, .rows = 0, .width = 8});
    add(w, w, 0);
    copy_on_device(w, w, 0);
    set_zero(w, 0);
    sum_in_order(total, sums, 0);
    sum_terms(w, terms, 2, 0);
    sum_rounded(sums, real_terms, 2, 0);
    sum_widened(sums, terms, 2, 0);
    sum_of_squares(sums, sums, 0);
    Spread* const in_sums = reinterpret_cast<Spread*>(sums);
    spread(in_sums, sums, 0);
    spread_of_change(in_sums, sums, sums, 0);
    spread_of_stored(in_sums, w, 0);
    spread_of_stored_change(in_sums, w, w, 0);
}

inline void mixes_on_no_rows(real* sums, floatX* w) {
    for (floatX* const r : {w, static_cast<floatX*>(nullptr)})
        shortcut_forward({.out = w, .in = w, .x = w, .r = r, .bias = r, .x0 = w, .keep = w, .add = w}, 0, 64);
    shortcut_backward({.dx = w, .dx0 = w, .dkeep = sums, .dadd = sums}, w, w, w, w, 0, 64);
    const ValueRows t = {.v = w, .h = w, .gatew = w, .table = w, .tokens = nullptr, .N = 0, .C = 64, .V = 7,
                         .KV = 2, .D = 16, .stride = 96};
    values_forward(t);
    values_backward({.drows = w, .dgates = sums, .dh = w, .dgatew = sums}, t);
}

inline void adamw_on_no_elements(real* sums, floatX* w, const GradientState* state) {
    const AdamwTensor none = {.start = 0, .count = 0, .global = 0, .lr = 1, .decay = 0};
    const Adamw a = {.param = sizeof(floatX) == sizeof(real) ? nullptr : w, .master = sums, .m = sums,
                     .v = sums, .grad = sums, .state = state, .beta1 = 0, .beta2 = 0, .eps = 1,
                     .step = 1, .stochastic = false, .seed = 1};
    adamw_update(a, &none, 0);
    adamw_update(a, &none, 1);
    Adamw rounded = a;
    rounded.moments = DType::BF16;
    adamw_update(rounded, &none, 1);
}

inline void muon_on_no_elements(real* sums, floatX* w, const GradientState* state) {
    const double squares = 1;
    muon_momentum(sums, sums, sums, state, 0, 0);
    bfloat16 momentum;
    muon_rounded_momentum({.u = sums, .m = &momentum, .grad = sums, .state = state, .mu = 0, .rows = 0,
                           .cols = 8, .step = 1, .seed = 1, .global = 0, .stride = 8});
    muon_normalize(w, sums, &squares, 0, 8, 1);
    linear_combination(w, 1, w, 1, w, 0);
    muon_update({.param = nullptr, .master = sums, .x = w, .x_stride = 8, .state = state, .rows = 0,
                 .cols = 8, .lr = 1, .stretch = 1, .decay = 0, .step = 1, .stochastic = false,
                 .cautious = false, .seed = 1, .global = 0, .stride = 8});
}

inline void everything_on_no_rows(real* sums, floatX* w, double* total, const GradientState* state) {
    const Encoder e = {.tokens = nullptr, .v0 = 0, .V = 61, .N = 0, .T = 0, .C = 64, .t0 = 0};
    encoder_forward(w, w, w, e);
    encoder_backward(sums, sums, w, e);
    layernorm_on_no_rows(sums, w);
    matmul_on_no_rows(sums, w);
    fp8_on_no_rows(sums, w);
    attention_on_no_rows(sums, w);
    rotary_on_no_rows(sums, w);
    mixes_on_no_rows(sums, w);
    classifier_on_no_rows(sums, w);
    vectors_on_no_elements(sums, w, total);
    adamw_on_no_elements(sums, w, state);
    muon_on_no_elements(sums, w, state);
}
