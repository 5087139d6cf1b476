// Llama, Qwen3 and NanoChat in plain loops, by the formulas of their papers and the names of Hugging Face.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/config/model_config.h"

namespace test {

using Vector = std::vector<double>;

struct PlainModel {
    ModelConfig m;                                              // with_sizes()
    std::function<Vector(const std::string& name)> get;         // matrices are (out, in)
    bool other_way = false;                                     // heads turn as NanoChat's

    size_t D() const { return size_t(m.head_channels); }

    Vector norm(const double* x, size_t n, const std::string& gain) const {
        double square = 0;
        for (size_t i = 0; i < n; i++) square += x[i] * x[i] / double(n);
        const Vector g = gain.empty() ? Vector(n, 1.) : get(gain);
        Vector y(n);
        for (size_t i = 0; i < n; i++) y[i] = x[i] / std::sqrt(square + m.norm_eps) * g[i];
        return y;
    }

    Vector linear(const Vector& x, const std::string& name) const {
        const Vector w = get(name + ".weight");
        Vector y(w.size() / x.size());
        const bool of_qkv = name.ends_with("q_proj") || name.ends_with("k_proj") || name.ends_with("v_proj");
        if (m.bias || (m.qkv_bias && of_qkv)) y = get(name + ".bias");
        for (size_t o = 0; o < y.size(); o++)
            for (size_t i = 0; i < x.size(); i++) y[o] += w[o * x.size() + i] * x[i];
        return y;
    }

    // Llama 3's scaling: waves beyond context / low are slowed down, those below context / high stay.
    double llama3(double f) const {
        const RopeScaling& s = m.rope_scaling;
        const double wave = 2 * M_PI / f;
        if (wave < s.context / s.high) return f;
        if (wave > s.context / s.low) return f / s.factor;
        const double smooth = (s.context / wave - s.low) / (s.high - s.low);
        return (1 - smooth) * f / s.factor + smooth * f;
    }

    // YaRN: pairs from the one with beta_fast rotations over the old context to that with beta_slow.
    double yarn(size_t i, double f) const {
        const RopeScaling& s = m.rope_scaling;
        const auto pair = [&](double rotations) {
            return double(D()) * std::log(s.context / (rotations * 2 * M_PI)) / (2 * std::log(m.rope_theta));
        };
        const double low = std::floor(pair(s.beta_fast)), high = std::ceil(pair(s.beta_slow));
        if (double(i) <= low) return f;
        if (double(i) >= high) return f / s.factor;
        const double slow = (double(i) - std::max(low, 0.)) / (high - std::max(low, 0.));
        return f * (1 - slow + slow / s.factor);
    }

    double frequency(size_t i) const {
        const double f = std::pow(m.rope_theta, -2. * double(i) / double(D()));
        switch (m.rope_scaling.kind) {
            case RopeScalingKind::Linear: return f / m.rope_scaling.factor;
            case RopeScalingKind::Llama3: return llama3(f);
            case RopeScalingKind::Yarn: return yarn(i, f);
            default: return f;
        }
    }

    // Of cos and sin.
    double lengthened() const {
        const RopeScaling& s = m.rope_scaling;
        if (s.kind != RopeScalingKind::Yarn) return 1;
        return s.attention > 0 ? s.attention : 1 + std::log(s.factor) / 10;
    }

    void turn(double* head, size_t t) const {
        for (size_t i = 0; i < D() / 2; i++) {
            const double angle = double(t) * frequency(i);
            const double c = std::cos(angle) * lengthened();
            const double s = std::sin(angle) * (other_way ? -lengthened() : lengthened());
            const double x1 = head[i], x2 = head[i + D() / 2];
            head[i] = x1 * c - x2 * s;
            head[i + D() / 2] = x2 * c + x1 * s;
        }
    }

    // Queries or keys of a token, normed and turned.
    Vector heads(const Vector& h, const std::string& attention, const char* which, size_t t) const {
        Vector rows = linear(h, attention + which + "_proj");
        const std::string gain = m.qk_gain ? attention + which + "_norm.weight" : "";
        for (size_t at = 0; at < rows.size(); at += D()) {
            if (m.qk_norm == QkNorm::After) turn(&rows[at], t);
            if (m.qk_norm != QkNorm::None) {
                const Vector y = norm(&rows[at], D(), gain);
                std::copy(y.begin(), y.end(), &rows[at]);
            }
            if (m.qk_norm != QkNorm::After) turn(&rows[at], t);
        }
        return rows;
    }

    Vector attend(const std::vector<Vector>& q, const std::vector<Vector>& k, const std::vector<Vector>& v,
                  size_t t, int window) const {
        const size_t first = window && t >= size_t(window) ? t + 1 - size_t(window) : 0;
        Vector y(q[t].size(), 0.);
        for (size_t head = 0; head < size_t(m.heads); head++) {
            const size_t at = head * D(), kv = head / size_t(m.heads / m.kv_heads) * D();
            Vector weight(t + 1);
            double sum = 0;
            for (size_t s = first; s <= t; s++) {
                double dot = 0;
                for (size_t i = 0; i < D(); i++) dot += q[t][at + i] * k[s][kv + i];
                weight[s] = std::exp(dot / std::sqrt(double(D())));
                sum += weight[s];
            }
            for (size_t s = first; s <= t; s++)
                for (size_t i = 0; i < D(); i++) y[at + i] += weight[s] / sum * v[s][kv + i];
        }
        return y;
    }

    Vector feed_forward(const Vector& h, const std::string& mlp) const {
        if (m.activation == Activation::Relu2) {
            Vector act = linear(h, mlp + "fc1");
            for (double& x : act) x = x > 0 ? x * x : 0;
            return linear(act, mlp + "fc2");
        }
        Vector act = linear(h, mlp + "gate_proj");
        const Vector up = linear(h, mlp + "up_proj");
        for (size_t i = 0; i < act.size(); i++) act[i] *= up[i] / (1 + std::exp(-act[i]));
        return linear(act, mlp + "down_proj");
    }

    std::string gain(const std::string& name) const { return m.norm_gain ? name + ".weight" : ""; }

    // After the last token.
    Vector logits(const std::vector<int32_t>& ids) const {
        const size_t C = size_t(m.channels), T = ids.size();
        const Vector wte = get("model.embed_tokens.weight");
        std::vector<Vector> x;
        for (const int32_t id : ids) {
            const double* row = &wte[size_t(id) * C];
            x.push_back(m.embed_norm ? norm(row, C, "") : Vector(row, row + C));
        }
        const auto add = [](Vector& to, const Vector& y) {
            for (size_t i = 0; i < y.size(); i++) to[i] += y[i];
        };
        for (int l = 0; l < m.layers; l++) {
            const std::string layer = "model.layers." + std::to_string(l) + ".", self = layer + "self_attn.";
            std::vector<Vector> q, k, v;
            for (size_t t = 0; t < T; t++) {
                const Vector h = norm(x[t].data(), C, gain(layer + "input_layernorm"));
                q.push_back(heads(h, self, "q", t));
                k.push_back(heads(h, self, "k", t));
                v.push_back(linear(h, self + "v_proj"));
            }
            for (size_t t = 0; t < T; t++) {
                add(x[t], linear(attend(q, k, v, t, m.window[size_t(l) % m.window.size()]), self + "o_proj"));
                const Vector h = norm(x[t].data(), C, gain(layer + "post_attention_layernorm"));
                add(x[t], feed_forward(h, layer + "mlp."));
            }
        }
        const Vector last = norm(x[T - 1].data(), C, gain("model.norm"));
        const Vector head = m.tied ? wte : get("lm_head.weight");
        Vector logits(head.size() / C, 0.);
        for (size_t o = 0; o < logits.size(); o++) {
            for (size_t i = 0; i < C; i++) logits[o] += head[o * C + i] * last[i];
            if (m.softcap > 0) logits[o] = m.softcap * std::tanh(logits[o] / m.softcap);
        }
        return logits;
    }
};

}  // namespace test
