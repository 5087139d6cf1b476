// A point of the lattice, trained: five steps over ranks on threads.
#pragma once
#include "llmc/comm/launch/launch.h"
#include "test/lattice_point.h"

namespace PRECISION {

struct TrainedPoint {
    std::vector<double> losses, norms;          // of each step; losses also before and after, by evaluation
    std::vector<real> weights;                  // of the whole model
    bool operator==(const TrainedPoint& o) const {
        return losses == o.losses && norms == o.norms && weights == o.weights;
    }
};

inline int train_point(const Config& cfg, const Mesh& mesh, TrainedPoint& outcome) {
    Tiny t(cfg, false, mesh);
    t.shake(0.1);
    Trace trace;
    const auto evaluate = [&] { trace.losses.push_back(t.model.pipeline.evaluate(t.set, 1, {})->loss); };
    evaluate();
    Loader data(t.set, t.model.pipeline.deal(mesh.dp.index), 0);
    for (int s = 0; s < kSteps; s++) train_step(t, data, s, trace);
    evaluate();
    TrainedPoint o{trace.losses, trace.norms, {}};
    for (const Tensor& tensor : whole_tensors(t.d)) {
        const std::vector<real> values = t.whole(tensor);
        o.weights.insert(o.weights.end(), values.begin(), values.end());
    }
    if (mesh.rank == 0) outcome = std::move(o);
    return 0;
}

inline TrainedPoint trained(const Point& p) {
    const Config cfg = p.config();
    TrainedPoint outcome;
    if (cfg.parallel.ranks == 1) train_point(cfg, Mesh(), outcome);
    else run_threads(cfg, [&](Config c, const Mesh& mesh) {
        for (const GroupRow& row : group_rows)
            if (Group* group = (mesh.*row.axis).group) group->most_delay_us = p.delay_us;
        return train_point(c, mesh, outcome);
    });
    return outcome;
}

// Weights have a floor of the learning rate: the true gradient of a key's bias is zero, and only rounding
// moves the bias.
inline void expect_same(const Point& p, const TrainedPoint& o, const TrainedPoint& reference,
                        double tolerance) {
    const double loss = test::largest_difference(o.losses, reference.losses);
    const double norm = test::largest_difference(o.norms, reference.norms);
    const double weight = test::largest_difference(o.weights, reference.weights, kRate);
    EXPECT(loss <= tolerance && norm <= tolerance && weight <= 1e-10,
           "%s: losses %.2g apart, norms %.2g, weights %.2g", p.text().c_str(), loss, norm, weight);
}

}  // namespace PRECISION
