// Images of the state of ranks, in the memory of an agent: of its own ranks, in files without a name that the
// rank shares (two places in turn, as one image is whole while the other is written, and two for images of
// train.rollback), and copies of another agent's.
//
// An image is bytes, the head that describes them, and the state of the run. An image is there once its rank
// has said Commit, or the other agent PushDone: a torn image is never there. It counts while the images are
// there that it needs.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/agents/channel.h"

inline namespace agents {

// The images of a rank in one generation.
struct RankImages {
    ImageSpace space = {};
    std::string head;
    std::byte* memory = nullptr;                // of all places
    bool own = false;                           // of a rank of this agent
    struct Image {
        int64_t step = kNoImage;
        std::array<int64_t, 2> needs = kNeedsNone;
        std::string state;
    };
    std::vector<Image> images;                  // by place

    RankImages() = default;
    RankImages(const RankImages&) = delete;
    ~RankImages();
    int place_of(int64_t step) const;           // -1: there is no such image
    bool counts(const Image& image) const;      // all that it needs is there
    std::byte* at(int place) { return memory + size_t(place) * space.bytes; }
};

struct ImageStore {
    // Maps the file of a rank's process.
    enum class Added { Done, Gone, NoRoom };        // Gone: the process is
    Added add(const ImageSpace& space, int process, std::string head);
    bool add_copy(const ImageSpace& space, std::string head);       // false: no memory
    bool write(const ImagePart& part, std::string_view data);       // into a copy. false: beyond it
    void commit(const ImageStep& s, std::string state);
    void forget_torn(const ImageStep& s);       // its rank died while it wrote the image, or behind Commit

    std::vector<Held> held() const;
    std::vector<ImageStep> images_of(int64_t generation, int rank);      // those needed first
    RankImages* find(int64_t generation, int rank);
    // Answers FetchHead and Fetch. false: no such image.
    bool answer(MessageChannel& to, const Message& asked);
    void drop_before(int64_t generation);
    // Of a plan: what ranks have kept between the images that they restore and their own, nobody restores.
    void drop_between(int64_t from, int64_t generation);
    size_t size() const { return images_.size(); }      // ranks of all generations
    // Images beyond the bound restore nothing, those that come later included.
    void forget(const ImageBound& bound) { bounds_.push_back(bound); }

private:
    std::vector<ImageBound> bounds_;
    std::map<std::pair<int64_t, int>, std::unique_ptr<RankImages>> images_;     // by generation and rank
};

// Sends copies of images to another agent, a piece at a time; of each place of a rank the newest alone.
struct ImageSender {
    AgentCall call;
    Source to = {};

    void add(const ImageStep& s);               // an image that was committed
    void advance(ImageStore& store);            // sends as much as the connection takes
    void reset();                               // the channel is another, or closed

private:
    struct Item { ImageStep step; uint64_t sent = 0; };
    std::vector<Item> queue_;
    std::map<std::pair<int64_t, int>, bool> begun_;
};

}  // namespace agents
