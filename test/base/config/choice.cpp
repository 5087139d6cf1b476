// Words of settings and their enums.
#include <cstring>
#include <string>

#include "llmc/base/config/choice.h"
#include "test/test.h"

using std::string;

template <class E> static void expect_words(std::initializer_list<E> values, const string& words) {
    string text;
    for (const E value : values) {
        const Choice<E> choice = value;
        text += (text.empty() ? "" : "|") + choice.text();
        EXPECT(Choice<E>(choice.text()) == value, "%s is another value", choice.text().c_str());
    }
    EXPECT(text == words && text == words_of(E()), "'%s', expected '%s'", text.c_str(), words.c_str());
}

TEST(words_of_models_are_in_the_order_of_their_values) {
    expect_words({NormKind::LayerNorm, NormKind::RmsNorm}, "layernorm|rmsnorm");
    expect_words({PositionKind::Learned, PositionKind::Rope}, "learned|rope");
    expect_words({QkNorm::None, QkNorm::Before, QkNorm::After}, "none|before|after");
    expect_words({Activation::Gelu, Activation::Relu2, Activation::Swiglu}, "gelu|relu2|swiglu");
    expect_words({SoftcapKind::Tanh, SoftcapKind::Sqrt}, "tanh|sqrt");
    expect_words({InitKind::Gpt2, InitKind::Unit}, "gpt2|unit");
    expect_words({Shortcut::None, Shortcut::X0}, "none|x0");
    expect_words({ValueEmbeddings::None, ValueEmbeddings::Alternate}, "none|alternate");
}

TEST(words_are_in_the_order_of_their_values) {
    using enum RunDevice;
    expect_words({Auto, Cpu, Cuda, Emulated}, "auto|cpu|cuda|emulated");
    expect_words({ProductKind::Bf16, ProductKind::Fp8}, "bf16|fp8");
    expect_words({RunPrecision::Auto, RunPrecision::Bf16, RunPrecision::Fp32, RunPrecision::Fp64},
                 "auto|bf16|fp32|fp64");
    expect_words({LrSchedule::Cosine, LrSchedule::Linear, LrSchedule::Wsd, LrSchedule::Constant},
                 "cosine|linear|wsd|constant");
    expect_words({TransportKind::Auto, TransportKind::Mpi, TransportKind::Tcp, TransportKind::Nccl,
                  TransportKind::Threads},
                 "auto|mpi|tcp|nccl|threads");
    expect_words({PipelineSchedule::OneFOneB, PipelineSchedule::Interleaved, PipelineSchedule::ZeroBubble},
                 "1f1b|interleaved|zb");
    expect_words({ReduceOrder::Auto, ReduceOrder::Ordered, ReduceOrder::Native}, "auto|ordered|native");
    expect_words({ReduceDtype::Fp32, ReduceDtype::Bf16}, "fp32|bf16");
    expect_words({CpKind::Gather, CpKind::Heads}, "gather|heads");
    expect_words({Recompute::None, Recompute::Selective, Recompute::Block}, "none|selective|block");
    expect_words({Offload::None, Offload::Optimizer, Offload::Weights, Offload::Activations},
                 "none|optimizer|weights|activations");
    expect_words({RowKind::Stream, RowKind::Documents}, "stream|documents");
    expect_words({OptimizerKind::Adamw, OptimizerKind::Muon}, "adamw|muon");
    expect_words({Polynomial::Polar, Polynomial::Quintic, Polynomial::Cubic}, "polar|quintic|cubic");
    const Fatal e = test::fatal_of([] { Choice<Recompute> c = "blocks"; (void)c; });
    EXPECT(strstr(e.what(), "'blocks': one of none|selective|block"), "%s", e.what());
}
