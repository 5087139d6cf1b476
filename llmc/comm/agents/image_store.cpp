#include "llmc/comm/agents/image_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"

inline namespace agents {

RankImages::~RankImages() {
    if (memory) munmap(memory, images.size() * space.bytes);
}

static std::unique_ptr<RankImages> mapped(const ImageSpace& space, int fd, int flags, std::string head) {
    constexpr uint64_t kMost = uint64_t(1) << 46;           // an image is of this machine's memory
    constexpr int kMostPlaces = 16;
    const bool possible = space.bytes > 0 && space.bytes <= kMost && space.places > 0 &&
                          space.places <= kMostPlaces;
    if (!possible) return nullptr;
    const size_t all = size_t(space.places) * space.bytes;
    void* const memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto images = std::make_unique<RankImages>();
    images->space = space;
    images->head = std::move(head);
    images->memory = static_cast<std::byte*>(memory);
    images->images.resize(size_t(space.places));
    return images;
}

ImageStore::Added ImageStore::add(const ImageSpace& space, int process, std::string head) {
    const std::string path = fmt::format("/proc/{}/fd/{}", process, space.file);
    const Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat s = {};
    const bool whole = file && fstat(file.fd, &s) == 0 && space.places > 0 &&
                       uint64_t(s.st_size) / uint64_t(space.places) >= space.bytes;
    if (!whole) return Added::Gone;
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

int RankImages::place_of(int64_t step) const {
    const auto found = std::ranges::find(images, step, &Image::step);
    return step < 0 || found == images.end() ? -1 : int(found - images.begin());
}

bool RankImages::counts(const Image& image) const {
    return image.step >= 0 && std::ranges::all_of(image.needs, [&](int64_t step) {
        return step == kNoImage || place_of(step) >= 0;
    });
}

RankImages* ImageStore::find(int64_t generation, int rank) {
    const auto found = images_.find({generation, rank});
    return found == images_.end() ? nullptr : found->second.get();
}

static bool has_place(const RankImages* i, int place) {
    return i && place >= 0 && size_t(place) < i->images.size();
}

bool ImageStore::write(const ImagePart& p, std::string_view data) {
    RankImages* const i = find(p.generation, p.rank);
    if (!has_place(i, p.place) || i->own || p.at > i->space.bytes || data.size() > i->space.bytes - p.at)
        return false;
    i->images[size_t(p.place)] = {};
    memcpy(i->at(p.place) + p.at, data.data(), data.size());
    return true;
}

void ImageStore::commit(const ImageStep& s, std::string state) {
    RankImages* const i = find(s.generation, s.rank);
    if (!has_place(i, s.place) || s.step < 0) return;
    i->images[size_t(s.place)] = {s.step, s.needs, std::move(state)};
}

void ImageStore::forget_torn(const ImageStep& s) {
    RankImages* const i = find(s.generation, s.rank);
    if (has_place(i, s.place) && i->images[size_t(s.place)].step != s.step) i->images[size_t(s.place)] = {};
}

static bool within(const std::vector<ImageBound>& bounds, int64_t generation, int64_t step) {
    return std::ranges::all_of(bounds, [&](const ImageBound& b) { return b.holds(generation, step); });
}

std::vector<Held> ImageStore::held() const {
    std::vector<Held> all;
    for (const auto& [key, of_rank] : images_)
        for (const auto& image : of_rank->images)
            if (of_rank->counts(image) && within(bounds_, key.first, image.step))
                all.push_back({key.first, image.step, of_rank->space.world, int32_t(key.second)});
    return all;
}

std::vector<ImageStep> ImageStore::images_of(int64_t generation, int rank) {
    std::vector<ImageStep> all;
    const RankImages* const i = find(generation, rank);
    for (size_t place = 0; i && place < i->images.size(); place++)
        if (const auto& image = i->images[place]; image.step >= 0)
            all.push_back({generation, image.step, rank, int32_t(place), image.needs});
    std::ranges::sort(all, {}, &ImageStep::step);
    return all;
}

bool ImageStore::answer(MessageChannel& to, const Message& asked) {
    const bool of_head = asked.kind == Say::FetchHead;
    const ImageStep s = asked.head<ImageStep>();        // ImagePart begins alike
    RankImages* const i = find(s.generation, s.rank);
    const int place = i ? i->place_of(s.step) : -1;
    if (place < 0) return false;
    if (of_head) {
        const auto& image = i->images[size_t(place)];
        to.send(Say::Fetched, ImageHead{i->head.size(), image.needs}, i->head + image.state);
        return true;
    }
    const ImagePart p = asked.head<ImagePart>();
    if (p.at > i->space.bytes || p.bytes > i->space.bytes - p.at) return false;
    to.send(Say::Fetched, {reinterpret_cast<const char*>(i->at(place) + p.at), size_t(p.bytes)});
    return true;
}

void ImageStore::drop_before(int64_t generation) {
    std::erase_if(images_, [&](const auto& entry) { return entry.first.first < generation; });
}

void ImageStore::drop_between(int64_t from, int64_t generation) {
    std::erase_if(images_, [&](const auto& entry) {
        const int64_t of = entry.first.first;
        return of != from && of < generation;
    });
}

// ---------------------------------------------------------------------------------------------------------
// copies

void ImageSender::add(const ImageStep& s) {
    const auto found = std::ranges::find_if(queue_, [&](const Item& q) {
        return q.step.rank == s.rank && q.step.generation == s.generation && q.step.place == s.place;
    });
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
        const int place = i ? i->place_of(q.step.step) : -1;
        const bool there = place >= 0;
        if (there && !begun_[{q.step.generation, q.step.rank}]) {
            begun_[{q.step.generation, q.step.rank}] = true;
            channel.send(Say::Push, i->space, i->head);
        }
        if (there && q.sent < i->space.bytes) {
            const uint64_t bytes = std::min(kPiece, i->space.bytes - q.sent);
            const ImagePart part = {q.step.generation, q.step.step, q.step.rank, place, q.sent, bytes};
            channel.send(Say::PushData, part,
                         {reinterpret_cast<const char*>(i->at(place) + q.sent), size_t(bytes)});
            q.sent += bytes;
            continue;
        }
        if (there) channel.send(Say::PushDone, q.step, i->images[size_t(place)].state);
        queue_.erase(queue_.begin());
    }
}

}  // namespace agents
