#include "llmc/comm/agents/image_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"

inline namespace agents {

RankImages::~RankImages() {
    if (memory) munmap(memory, 2 * space.bytes);
}

static std::unique_ptr<RankImages> mapped(const ImageSpace& space, int fd, int flags, std::string head) {
    constexpr uint64_t kMost = uint64_t(1) << 46;           // an image is of this machine's memory
    if (space.bytes == 0 || space.bytes > kMost) return nullptr;
    void* const memory = mmap(nullptr, 2 * space.bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto images = std::make_unique<RankImages>();
    images->space = space;
    images->head = std::move(head);
    images->memory = static_cast<std::byte*>(memory);
    return images;
}

ImageStore::Added ImageStore::add(const ImageSpace& space, int process, std::string head) {
    const std::string path = fmt::format("/proc/{}/fd/{}", process, space.file);
    const Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat s = {};
    if (!file || fstat(file.fd, &s) != 0 || uint64_t(s.st_size) < 2 * space.bytes) return Added::Gone;
    auto images = mapped(space, file.fd, MAP_SHARED, std::move(head));
    if (!images) return Added::NoRoom;
    images->own = true;
    images_[{space.generation, space.rank}] = std::move(images);
    return Added::Done;
}

bool ImageStore::add_copy(const ImageSpace& space, std::string head) {
    if (const RankImages* const there = find(space.generation, space.rank); there && there->own) return false;
    auto images = mapped(space, -1, MAP_PRIVATE | MAP_ANONYMOUS, std::move(head));
    if (!images) return false;
    images_[{space.generation, space.rank}] = std::move(images);
    return true;
}

RankImages* ImageStore::find(int64_t generation, int rank) {
    const auto found = images_.find({generation, rank});
    return found == images_.end() ? nullptr : found->second.get();
}

bool ImageStore::write(const ImagePart& p, std::string_view data) {
    RankImages* const i = find(p.generation, p.rank);
    if (!i || i->own || p.at > i->space.bytes || data.size() > i->space.bytes - p.at) return false;
    i->half(p.step).step = -1;
    memcpy(i->at(p.step) + p.at, data.data(), data.size());
    return true;
}

void ImageStore::commit(const ImageStep& s, std::string state) {
    RankImages* const i = find(s.generation, s.rank);
    if (i && s.step >= 0) i->half(s.step) = {s.step, std::move(state)};
}

void ImageStore::forget_torn(const ImageStep& s) {
    RankImages* const i = find(s.generation, s.rank);
    if (i && i->half(s.step).step != s.step) i->half(s.step).step = -1;
}

std::vector<Held> ImageStore::held() const {
    std::vector<Held> all;
    for (const auto& [key, images] : images_)
        for (const auto& half : images->halves)
            if (half.step >= 0)
                all.push_back({key.first, half.step, images->space.world, int32_t(key.second)});
    return all;
}

bool ImageStore::answer(MessageChannel& to, const Message& asked) {
    const bool of_head = asked.kind == Say::FetchHead;
    const ImageStep s = asked.head<ImageStep>();        // ImagePart begins alike
    RankImages* const i = find(s.generation, s.rank);
    if (!i || s.step < 0 || i->half(s.step).step != s.step) return false;
    if (of_head) {
        to.send(Say::Fetched, uint64_t(i->head.size()), i->head + i->half(s.step).state);
        return true;
    }
    const ImagePart p = asked.head<ImagePart>();
    if (p.at > i->space.bytes || p.bytes > i->space.bytes - p.at) return false;
    to.send(Say::Fetched, {reinterpret_cast<const char*>(i->at(s.step) + p.at), size_t(p.bytes)});
    return true;
}

void ImageStore::drop_before(int64_t generation) {
    std::erase_if(images_, [&](const auto& entry) { return entry.first.first < generation; });
}

// ---------------------------------------------------------------------------------------------------------
// copies

void ImageSender::add(const ImageStep& s) {
    const auto found = std::ranges::find_if(queue_, [&](const Item& q) { return q.step.rank == s.rank; });
    if (found == queue_.end()) queue_.push_back({s});
    else *found = {s};
}

void ImageSender::reset() {
    queue_.clear();
    begun_.clear();
}

void ImageSender::advance(ImageStore& store) {
    static constexpr uint64_t kPiece = 1 << 20;
    MessageChannel& channel = call.channel;
    channel.flush();
    while (call.proved && !queue_.empty() && !channel.closed && channel.unsent() < kPiece) {
        Item& q = queue_.front();
        RankImages* const i = store.find(q.step.generation, q.step.rank);
        const bool there = i && i->half(q.step.step).step == q.step.step;
        if (there && !begun_[{q.step.generation, q.step.rank}]) {
            begun_[{q.step.generation, q.step.rank}] = true;
            channel.send(Say::Push, i->space, i->head);
        }
        if (there && q.sent < i->space.bytes) {
            const uint64_t bytes = std::min(kPiece, i->space.bytes - q.sent);
            const ImagePart part = {q.step.generation, q.step.step, q.step.rank, 0, q.sent, bytes};
            channel.send(Say::PushData, part,
                         {reinterpret_cast<const char*>(i->at(q.step.step) + q.sent), size_t(bytes)});
            q.sent += bytes;
            continue;
        }
        if (there) channel.send(Say::PushDone, q.step, i->half(q.step.step).state);
        queue_.erase(queue_.begin());
    }
}

}  // namespace agents
