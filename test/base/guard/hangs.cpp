// When silence is a hang, and the rank to blame: the test writes the progress page and the clock.
#include "llmc/base/guard/hangs.h"

#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/guard/wait.h"
#include "test/test.h"

TEST(the_default_is_five_of_the_slowest_step_and_a_minute_at_least) {
    EXPECT_NEAR(hang_limit(0, 0, false), 60, 0);
    EXPECT_NEAR(hang_limit(0, 11.9, false), 60, 0);
    EXPECT_NEAR(hang_limit(0, 13, false), 65, 0);
    EXPECT_NEAR(hang_limit(0, 1000, false), 5000, 0);
    EXPECT_NEAR(hang_limit(2, 0, false), 2, 0);          // the setting, shorter or longer
    EXPECT_NEAR(hang_limit(2, 1000, false), 2, 0);
    EXPECT_NEAR(hang_limit(7200, 3, false), 7200, 0);
    EXPECT_NEAR(hang_limit(2, 0, true), 60, 0);          // the start has a minute
    EXPECT_NEAR(hang_limit(7200, 0, true), 7200, 0);
    EXPECT_NEAR(hang_limit(0, 1000, true), 5000, 0);
}

namespace {

// Ranks of one process under the watch.
struct Ranks {
    std::unique_ptr<ProgressPage> page = std::make_unique<ProgressPage>();
    HangFinder finder{*page};

    explicit Ranks(int count, double timeout = 0) {
        page->used = count;
        page->hang_timeout = timeout;
        for (int i = 0; i < count; i++) page->ranks[i].joined = i + 1;
    }
    void go(int rank, Phase p, int64_t step) {
        page->ranks[rank].phase = p, page->ranks[rank].step = step;
        page->ranks[rank].beats++;
    }
    void beat(int rank) { page->ranks[rank].beats++; }
    void wait(int rank) { page->ranks[rank].wait = "all_gather dp"; }
    // The first moment, up to `most` seconds, at which somebody is blamed; most + 1: nobody is.
    double blamed_after(double most, bool stopped = false, int beating = -1) {
        for (int tick = 1; tick <= int(most * 10); tick++) {
            if (beating >= 0) beat(beating);
            finder.look(0.1);
            if ((blamed = finder.blamed(stopped)) >= 0) return tick / 10.0;
        }
        return most + 1;
    }
    int blamed = -1;
};

}  // namespace

TEST(steps_that_were_seen_make_patient) {
    Ranks one(1);
    for (int64_t step = 1; step <= 3; step++) {
        one.go(0, Phase::Train, step);
        one.blamed_after(step == 2 ? 20 : 5);
    }
    one.go(0, Phase::Evaluate, 3);
    one.finder.look(0.1);
    EXPECT_NEAR(one.finder.slowest_step, 20, 0.3);
    EXPECT_NEAR(one.blamed_after(200), 100, 2);
    Ranks other(1);                                     // an evaluation is no step
    other.go(0, Phase::Evaluate, 0);
    other.blamed_after(50);
    other.go(0, Phase::Train, 1);
    EXPECT_NEAR(other.blamed_after(200), 60, 0.3);
}

TEST(every_phase_is_watched) {
    for (Phase p : {Phase::Start, Phase::Load, Phase::Train, Phase::Evaluate, Phase::Sample, Phase::Save,
                    Phase::End}) {
        Ranks ranks(2, 5);
        for (int i = 0; i < 2; i++) ranks.go(i, p, 3);
        ranks.wait(0);
        EXPECT_NEAR(ranks.blamed_after(100), p == Phase::Start ? 60 : 5, 0.3);
        EXPECT(ranks.blamed == 1, "%s: rank %d is blamed", name_of(p), ranks.blamed);
        Ranks stopped(2, 5);
        for (int i = 0; i < 2; i++) stopped.go(i, p, 3);
        EXPECT_NEAR(stopped.blamed_after(100, true), 5, 0.3);
    }
}

TEST(beats_are_progress_and_time_in_a_step_is_not_silence) {
    Ranks ranks(2, 5);
    for (int i = 0; i < 2; i++) ranks.go(i, Phase::Train, 1);
    ranks.wait(0);
    EXPECT(ranks.blamed_after(100, false, 1) > 100, "rank %d is blamed", ranks.blamed);
}

TEST(who_waits_is_blamed_only_when_all_do) {
    Ranks all(3, 5);
    for (int i = 0; i < 3; i++) all.go(i, Phase::Save, 1), all.wait(i);
    EXPECT_NEAR(all.blamed_after(100), 5 + kCourtesy, 0.3);
    Ranks stopped(1, 5);                                // in a collective, but by a signal
    stopped.go(0, Phase::Save, 1), stopped.wait(0);
    EXPECT_NEAR(stopped.blamed_after(100, true), 5, 0.3);
}

// A wait for late ranks at the start has its own patience; a rank that then waits for nobody has not.
TEST(a_wait_of_the_start_may_take_longer) {
    Ranks ranks(1, 5);
    progress_page = ranks.page.get();
    context.progress = &ranks.page->ranks[0];
    EXPECT_NEAR(start_patience(), 120, 0);
    ranks.page->hang_timeout = 600;
    EXPECT_NEAR(start_patience(), 600, 0);
    ranks.page->hang_timeout = 5;
    {
        const Waiting named("MPI_Init", Awaits::Ranks, start_patience());
        EXPECT(ranks.page->ranks[0].wait.text == std::string("MPI_Init"));
        EXPECT_NEAR(ranks.blamed_after(200), 120 + kCourtesy, 0.3);
        EXPECT(ranks.finder.blamed(true) == 0, "a stopped process is not waited for");
    }
    EXPECT(!ranks.page->ranks[0].wait.text[0] && ranks.page->ranks[0].beats == 1);
    ranks.go(0, Phase::Train, 1);
    EXPECT_NEAR(ranks.blamed_after(200), 5, 0.3);
    context.progress = nullptr;
    progress_page = nullptr;
}

// A rank that waits on its own is to blame, while others wait for it.
TEST(a_wait_of_a_rank_on_its_own_excuses_nobody) {
    Ranks ranks(2, 5);
    for (int i = 0; i < 2; i++) ranks.go(i, Phase::Train, 1);
    ranks.wait(0);
    context.progress = &ranks.page->ranks[1];
    {
        const Waiting named("loader", Awaits::Own);
        EXPECT_NEAR(ranks.blamed_after(100), 5, 0.3);
        EXPECT(ranks.blamed == 1 && ranks.page->ranks[1].wait.text == std::string("loader"));
        const Waiting outer_stays("a wait for the disk", Awaits::Own);
        EXPECT(ranks.page->ranks[1].wait.text == std::string("loader"));
        {
            const Waiting takes_over("all_gather dp");
            EXPECT(ranks.page->ranks[1].waits_for_ranks());
            waits_for_peer("rank 3 on a host");
            const Waiting stays("a wait for the device"), too("loader", Awaits::Own);
            EXPECT(ranks.page->ranks[1].wait.text == std::string("all_gather dp from rank 3 on a host"));
        }
        EXPECT(ranks.page->ranks[1].wait.text == std::string("loader"));
        EXPECT(!ranks.page->ranks[1].waits_for_ranks());
    }
    EXPECT(!ranks.page->ranks[1].wait.text[0]);
    context.progress = nullptr;
}

// A program that waits for a person's input is no hang, however long it takes.
TEST(a_wait_that_may_take_any_time_beats) {
    for (const bool beats : {false, true}) {
        Ranks one(1, 5);
        context.progress = &one.page->ranks[0];
        const bool done = wait_until({.what = "standard input", .on = Awaits::Own, .nap = 1e-3,
                                      .until = seconds_now() + 0.1, .beats = beats}, [] { return false; });
        const uint64_t count = one.page->ranks[0].beats;        // the end of a wait is one
        EXPECT(!done && (beats ? count > 5 : count == 1), "%d beats", int(count));
        context.progress = nullptr;
    }
}

// A slow rank of another process makes progress, then hangs: ranks that wait are blamed only after that.
TEST(who_waits_is_not_blamed_while_another_process_makes_progress) {
    Ranks ranks(2, 5);
    for (int i = 0; i < 2; i++) ranks.go(i, Phase::Train, 1), ranks.wait(i);
    ranks.page->news_delay = 3;
    for (int second = 0; second < 60; second += 9) {
        ranks.page->others++;
        EXPECT(ranks.blamed_after(9) > 9, "rank %d is blamed", ranks.blamed);
    }
    ranks.page->others++;
    EXPECT_NEAR(ranks.blamed_after(100), 5 + kCourtesy + 3, 0.3);
    Ranks own(2, 5);                                    // a rank that hangs outside of collectives is
    for (int i = 0; i < 2; i++) own.go(i, Phase::Train, 1);
    own.wait(0);
    for (int second = 0; second < 4; second++) {
        own.page->others++;
        EXPECT(own.blamed_after(1) > 1);
    }
    own.page->others++;
    EXPECT_NEAR(own.blamed_after(100), 1, 0.3);
    EXPECT(own.blamed == 1);
}
