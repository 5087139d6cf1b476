// Connections of a rank to the other members of its groups, over TCP. A connection carries two streams of
// pieces, each in its own order: of collectives, and of messages (send, recv). Both ends know the sizes of
// the pieces in advance.
//
// Of a rank on the same host, long pieces do not go through the connection: the receiver reads them from the
// sender's memory (process_vm_readv), and says when it has. One copy in place of two, by one rank.
//
// Data moves while a rank waits, never beside its computing. A rank that waits for anything moves all its
// pieces, so the order of waits cannot lock ranks.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "llmc/comm/group.h"
#include "llmc/comm/rendezvous/socket.h"

inline namespace transport {

enum StreamOf : uint8_t { kCollectives, kMessages, kStreams };

// Before each piece, and alone.
struct Frame {
    enum Kind : uint32_t {
        Data,           // `bytes` bytes follow
        Read,           // the receiver reads `bytes` bytes at `address` of the sender's memory
        Taken,          // the oldest piece of kind Read has been read
        End,            // the sender will neither send nor receive any more
        Lost,           // a rank has gone: `bytes` is its number
    } kind;
    uint32_t stream;    // of Data and Read
    uint64_t bytes, address;
};

struct Link {
    // Pieces on their way. *left: pieces that the verb still waits for.
    struct Out {
        Frame frame;
        const std::byte* data;
        size_t moved;               // of frame and data
        size_t* left;               // null: nobody waits
    };
    struct In {
        std::byte* data;
        size_t bytes;
        size_t* left;
    };
    // A piece that has come before its receive.
    struct Early {
        Frame frame;
        std::vector<std::byte> data;
    };

    Socket socket;
    int peer = 0;                   // rank at the other end
    std::string host;
    int process = 0;                // whose memory both ends read; 0: everything goes through the socket
    std::deque<Out> out;
    std::deque<In> in[kStreams];
    std::deque<Early> early[kStreams];
    std::deque<size_t*> lent;       // pieces of kind Read that the peer has not taken
    Frame frame = {};               // that now arrives
    size_t got = 0;                 // of the frame
    std::vector<std::byte> kept;    // its data, where no receive is posted
    std::byte* place = nullptr;     // where its data goes; null: not known yet
    size_t moved = 0;               // of its data
    bool ended = false;             // nothing more will arrive

    bool wants_input() const { return !in[0].empty() || !in[1].empty() || !lent.empty(); }
};

// Starts to move a piece; *left is one more until the piece is there, and the data may change again.
void post_send(Link& l, StreamOf stream, const void* data, size_t bytes, size_t* left);
void post_recv(Link& l, StreamOf stream, void* data, size_t bytes, size_t* left);

// Waits until *left is 0. A rank that is gone ends the wait with exit code 75. links: all of this rank's.
void await_pieces(std::vector<Link*>& links, const size_t* left);

// Tells every peer that this rank will not call again; by then it has no pieces on their way.
void end_links(std::vector<Link*>& links);

// Copies `bytes` bytes at `address` of another process. false: not allowed, or no such memory.
bool read_memory(int process, void* to, uint64_t address, size_t bytes);

}  // namespace transport
