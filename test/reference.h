// PyTorch's models of dev/reference.py and dev/reference_kinds.py, and ours made to do the same.
#pragma once
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "llmc/base/context.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/state_source.h"
#include "test/test.h"

namespace PRECISION {

using Numbers = std::vector<double>;
using Values = std::map<std::string, Numbers>;      // by name, padding left out

struct Reference {
    SafetensorsFile file{"test/data/gpt_reference.safetensors"};
    std::string prefix = "";            // of the names of a model's tensors

    double number(const char* key) const { return strtod(file.metadata.at(key).c_str(), nullptr); }
    int integer(const char* key) const { return int(number(key)); }
    template <class T> std::vector<T> tensor(const std::string& name) const {
        const TensorInfo* t = file.find(prefix + name);
        CHECK(t && t->bytes() % sizeof(T) == 0, "{}: no tensor {}{}", file.path, prefix, name);
        std::vector<T> values(t->bytes() / sizeof(T));
        file.read(*t, values.data());
        return values;
    }
};

inline std::vector<int64_t> shape_of(const Param& p) {
    if (p.whole_cols == 1) return {p.whole_rows};
    return {p.whole_rows, p.whole_cols};
}

inline Config config_of(const Reference& ref) {
    Config c;
    c.model.layers = ref.integer("layers"), c.model.heads = ref.integer("heads");
    c.model.channels = ref.integer("channels"), c.model.context = ref.integer("context");
    c.model.vocab = ref.integer("vocab");
    c.train.batch_tokens = ref.integer("batch") * c.model.context;
    c.optimizer.beta1 = ref.number("beta1"), c.optimizer.beta2 = ref.number("beta2");
    c.optimizer.eps = ref.number("eps"), c.optimizer.weight_decay = ref.number("weight_decay");
    c.optimizer.grad_clip = ref.number("grad_clip");
    return c;
}

// A copy of what lies in the device's memory, where only ops and copies may look.
template <class T> std::vector<T> fetched(const T* p, size_t count) {
    std::vector<T> v(count);
    ops::copy_to_host(v.data(), p, count * sizeof(T));
    return v;
}

// Starts from the weights of the reference.
struct Ours {
    Reference ref;
    Config cfg;
    std::vector<int64_t> shape = ref.file.find(ref.prefix + "tokens")->shape;     // (steps, B, T + 1)
    int B = int(shape[1]), T = int(shape[2]) - 1;
    Dims d = dims_of(cfg, cfg.model.vocab);
    Model model{cfg, Mesh(), B, false};
    size_t id_bytes = size_t(2 * B * T) * sizeof(int32_t);
    int32_t* ids = static_cast<int32_t*>(ops::device_allocate(id_bytes));       // (2, B, T): inputs, targets

    Ours(const Ours&) = delete;
    ~Ours() { ops::device_free(ids, id_bytes); }
    Ours() : Ours(Reference(), config_of(Reference())) {}
    Ours(Reference from, const Config& c) : ref(std::move(from)), cfg(c) {
        omp_set_num_threads(context.threads);
        model.allocate();
        for (const Tensor& t : model.shards.layout.tensors) {
            ref.file.require(ref.prefix + "init." + t.name, "F32", shape_of(t.param));
            const auto init = ref.tensor<float>("init." + t.name);
            const std::vector<real> values(init.begin(), init.end());
            set_tensor(model.shards, t, values);
        }
    }

    Batch batch(int step) {
        const auto tokens = ref.tensor<int32_t>("tokens");
        std::vector<int32_t> inputs, targets;
        for (int b = 0; b < B; b++) {
            const int32_t* row = tokens.data() + size_t(step * B + b) * size_t(T + 1);
            inputs.insert(inputs.end(), row, row + T);
            targets.insert(targets.end(), row + 1, row + 1 + T);
        }
        inputs.insert(inputs.end(), targets.begin(), targets.end());
        ops::copy_to_device(ids, inputs.data(), id_bytes);
        return {.tokens = ids, .targets = ids + B * T, .B = B, .T = T};
    }

    // Mean loss per token, without gradients; leaves the logits.
    double loss(const Batch& b) {
        model.gpt.clear_loss();
        model.gpt.forward(model.zero, b);
        model.gpt.head_loss(model.zero, b);
        return fetched(model.gpt.loss, 1)[0] / (B * T);
    }

    double loss_and_gradients(const Batch& b) {
        model.zero.clear_grads();
        model.gpt.clear_loss();
        model.gpt.forward(model.zero, b);
        model.gpt.backward(model.zero, b, real(1.0 / (B * T)));
        return fetched(model.gpt.loss, 1)[0] / (B * T);
    }

    Numbers logits() const {
        Numbers all;
        CHECK(model.gpt.logit_rows >= B * T, "logits of {} rows, expected {}", model.gpt.logit_rows, B * T);
        const auto rows = fetched(model.gpt.logits, size_t(B * T) * size_t(d.Vp));
        for (int n = 0; n < B * T; n++) {
            const floatX* row = rows.data() + size_t(n) * size_t(d.Vp);
            for (int v = 0; v < d.V; v++) all.push_back(double(row[v]));
        }
        return all;
    }

    // logits, loss, norm, grad.X and final.X, as the reference has them
    Values steps() {
        Values out;
        const auto lr = ref.tensor<double>("lr");
        for (int step = 0; step < int(lr.size()); step++) {
            const Batch b = batch(step);
            if (step == 0) loss(b), out["logits"] = logits();
            out["loss"].push_back(loss_and_gradients(b));
            for (const Tensor& t : model.shards.layout.tensors) {
                if (step) break;
                const auto g = fetched(model.shards.grads + t.start, t.param.used());
                out["grad." + t.name].assign(g.begin(), g.end());
            }
            enqueue_update(model, lr[size_t(step)], step);
            out["norm"].push_back(model.statistics->read().norm);
        }
        for (const Tensor& t : model.shards.layout.tensors) {
            const std::vector<real> w = whole_tensor(model.shards, t);
            out["final." + t.name].assign(w.begin(), w.end());
        }
        return out;
    }
};

inline const Values& ours() {
    static const Values values = Ours().steps();
    return values;
}

}  // namespace PRECISION
