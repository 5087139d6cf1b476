// Channels, the lease and the store of images, each by itself.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/comm/agents/image_store.h"
#include "llmc/comm/agents/lease.h"
#include "test/test.h"

using namespace test;
using std::string, std::vector;

namespace {

struct Door {
    Listeners listeners = listen_at("127.0.0.1", {0});
    uint16_t port = port_of(listeners.sockets[0]);

    // Hears a caller until it is admitted or turned away, then echoes.
    bool serve(const string& secret) {
        pollfd p = {listeners.sockets[0].fd, POLLIN, 0};
        poll(&p, 1, 5000);
        Caller c(Socket(accept4(p.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
        bool admitted = false;
        while (!c.channel.closed) {
            const std::optional<Message> m = c.channel.await("a caller", seconds_now() + 5);
            if (!m) break;
            if (!c.admitted && !c.admit(*m, secret)) break;
            if (c.admitted && admitted) c.channel.send(m->kind, m->bytes);
            admitted = c.admitted;
        }
        return admitted;
    }
};

}  // namespace

TEST(only_who_knows_the_secret_is_heard) {
    for (const string secret : {"the secret", "another", ""}) {
        Door door;
        bool admitted = false;
        std::thread server([&] { admitted = door.serve("the secret"); });
        {
            MessageChannel c = call_agent("127.0.0.1", door.port, secret, seconds_now() + 5);
            EXPECT(c.closed == (secret != "the secret"), "'%s'", secret.c_str());
            const string long_text(3 << 20, 'x');
            c.send(Say::Hello, long_text);
            const auto m = c.closed ? std::nullopt : c.await("an echo", seconds_now() + 10);
            EXPECT(c.closed || (m && m->bytes == long_text), "no echo");
        }
        server.join();
        EXPECT(admitted == (secret == "the secret"), "'%s'", secret.c_str());
    }
}

// Before its proof a caller cannot make the agent keep more than a few bytes.
TEST(a_stranger_sends_no_long_message) {
    Door door;
    bool admitted = true;
    std::thread server([&] { admitted = door.serve("the secret"); });
    MessageChannel c(std::move(connect_to("127.0.0.1", {door.port}, seconds_now() + 5).front()));
    c.send(Say::Proof, string(1000, 'x'));
    server.join();
    EXPECT(!admitted, "it was admitted");
}

TEST(one_agent_has_the_lease) {
    const string dir = folder("lease");
    (void)run("mkdir -p " + dir + " && rm -f " + dir + "/*");
    Lease a(dir), b(dir), c(dir);
    EXPECT(!a.read() && a.may_take() && !b.read() && b.may_take(), "a new run has no lease");
    EXPECT(a.take("here", 1) && !b.take("there", 2), "two have it");
    EXPECT(c.read() && !c.may_take() && c.read()->address == "here", "not the first one's");
    EXPECT(a.keep(true) && a.own.beat == 1, "it cannot be renewed");
    // its process is gone
    LeaseText gone = *c.read();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    string text = read_file(dir + "/lease");
    const string own = "\"process\":" + std::to_string(getpid());
    text.replace(text.find(own), own.size(), "\"process\":" + std::to_string(child));
    write_file(dir + "/lease", text);
    EXPECT(c.read() && c.may_take() && c.take("third", 3), "a dead agent keeps it");
    EXPECT(c.own.epoch == gone.epoch + 1 && c.own.secret == gone.secret, "epoch %ld", long(c.own.epoch));
    EXPECT(!a.keep(true), "the first one still believes to have it");
    a.give_up();
    EXPECT(b.read() && b.read()->address == "third", "it was given up by another");
    c.give_up();
    EXPECT(!b.read(), "it is still there");
}

// A rank that wakes up behind those who went on without it.
TEST(a_rank_of_an_earlier_plan_changes_no_file_of_the_run) {
    const string dir = folder("claims");
    (void)run("mkdir -p " + dir + " && rm -f " + dir + "/*");
    EXPECT(claim_run_files(dir, 1, 3) && claim_run_files(dir, 1, 3), "the first has it");
    EXPECT(claim_run_files(dir, 1, 4) && !claim_run_files(dir, 1, 3), "of an earlier generation");
    EXPECT(claim_run_files(dir, 2, 1) && !claim_run_files(dir, 1, 5), "of an earlier controller");
    Lease next(dir);
    EXPECT(!next.read() && next.take("here", 1) && next.own.epoch == 3, "epoch %ld", long(next.own.epoch));
    next.give_up();
    EXPECT(claim_run_files(dir, 1, 1), "the next job begins anew");
}

// A copy that has not come whole, or is being replaced, is no image.
TEST(a_torn_image_is_none) {
    ImageStore store;
    const ImageSpace space = {.generation = 3, .world = 2, .rank = 1, .bytes = 100, .file = -1, .places = 2};
    EXPECT(store.add_copy(space, "head"), "no memory");
    const string half(50, 'a');
    EXPECT(store.write({3, 8, 1, 0, 0, 50}, half) && store.held().empty(), "half an image");
    EXPECT(store.write({3, 8, 1, 0, 50, 50}, half), "the other half");
    EXPECT(!store.write({3, 8, 1, 0, 51, 50}, half) && !store.write({3, 8, 0, 0, 0, 50}, half) &&
               !store.write({3, 8, 1, 2, 0, 50}, half), "beyond it");
    store.commit({3, 8, 1, 0, kNeedsNone}, "state of 8");
    EXPECT(store.held().size() == 1 && store.held()[0].step == 8, "not there");
    store.commit({3, 9, 1, 1, kNeedsNone}, "state of 9");
    EXPECT(store.held().size() == 2, "two in turn");
    EXPECT(store.write({3, 10, 1, 0, 0, 50}, half) && store.held().size() == 1 && store.held()[0].step == 9,
           "the image that is being replaced still counts");
    store.commit({3, 10, 1, 0, kNeedsNone}, "state of 10");
    store.forget_torn({3, 10, 1, 0, kNeedsNone});
    EXPECT(store.held().size() == 2, "it was whole");
    store.forget_torn({3, 11, 1, 1, kNeedsNone});           // its rank died while it wrote over 9
    EXPECT(store.held().size() == 1 && store.held()[0].step == 10, "the image that was being replaced");
    store.drop_before(4);
    EXPECT(store.held().empty(), "of an older generation");
}

// An image counts while those are there that train.rollback needs beside it; these alone restore nothing.
TEST(an_image_without_those_that_it_needs_is_none) {
    ImageStore store;
    const ImageSpace space = {.generation = 1, .world = 1, .rank = 0, .bytes = 8, .file = -1, .places = 4};
    EXPECT(store.add_copy(space, "head"), "no memory");
    store.commit({1, 5, 0, 0, {kNeverRestored, kNeverRestored}}, "");
    store.commit({1, 10, 0, 1, {kNeverRestored, kNeverRestored}}, "");
    EXPECT(store.held().empty(), "a run without what it may go back to");
    store.commit({1, 12, 0, 2, {5, 10}}, "");
    EXPECT(store.held().size() == 1 && store.held()[0].step == 12, "%zu", store.held().size());
    const vector<ImageStep> all = store.images_of(1, 0);
    EXPECT(all.size() == 3 && all[0].step == 5 && all[2].step == 12 && all[2].needs[1] == 10, "%zu",
           all.size());
    EXPECT(store.write({1, 13, 0, 0, 0, 8}, "12345678") && store.held().empty(), "5 is gone");
}

// Generations that came to nothing leave no images behind.
TEST(images_of_two_generations_at_most_are_kept) {
    ImageStore store;
    for (int64_t g = 3; g <= 6; g++) {
        ImageSpace space = {.generation = g, .world = 1, .rank = 0, .bytes = 8, .file = -1, .places = 2};
        EXPECT(store.add_copy(space, ""), "no memory");
        store.commit({g, 10 - g, 0, 0, kNeedsNone}, "");
    }
    store.drop_between(4, 6);
    EXPECT(store.held().size() == 2 && store.find(4, 0) && store.find(6, 0), "%zu are kept", store.size());
    store.drop_between(0, 7);               // a plan without images
    EXPECT(store.size() == 0, "%zu are kept", store.size());
}

// A rank's memory outlives the rank: here its descriptor.
TEST(an_image_outlives_its_rank) {
    ImageStore store;
    const int file = memfd_create("image", 0);
    EXPECT(ftruncate(file, 2 * 4096) == 0, "no memory");
    const ImageSpace space = {.generation = 1, .world = 1, .rank = 0, .bytes = 4096, .file = file,
                              .places = 2};
    EXPECT(store.add(space, getpid(), "head") == ImageStore::Added::Done, "it cannot be mapped");
    EXPECT(pwrite(file, "step 5", 6, 4096) == 6, "write");
    store.commit({1, 5, 0, 1, kNeedsNone}, "state");
    RankImages* const i = store.find(1, 0);
    EXPECT(i && string(reinterpret_cast<char*>(i->at(i->place_of(5))), 6) == "step 5", "other bytes");
    EXPECT(store.add({1, 1, 0, 4096, file, 3}, getpid(), "") == ImageStore::Added::Gone, "a short file");
    close(file);
    EXPECT(i && string(reinterpret_cast<char*>(i->at(1)), 6) == "step 5", "other bytes");
    EXPECT(store.add({1, 1, 0, 4096, file, 2}, getpid(), "") == ImageStore::Added::Gone,
           "a closed descriptor");
}
