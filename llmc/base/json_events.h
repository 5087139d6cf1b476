// Reads JSON text as events, in the order of the text, without building a value. Only json_events.cpp
// compiles nlohmann's parser, which takes seconds.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// Each returns whether to go on. Texts are valid UTF-8 and may be moved from.
struct JsonEvents {
    virtual ~JsonEvents() = default;
    virtual bool null() = 0;
    virtual bool boolean(bool) = 0;
    virtual bool negative(int64_t) = 0;         // an integer below 0; -0 reads as 0
    virtual bool natural(uint64_t) = 0;         // an integer of 0 and above
    virtual bool real(double) = 0;              // with a point or an exponent, or beyond 64 bits
    virtual bool string(std::string&) = 0;
    virtual bool key(std::string&) = 0;         // the value comes next
    virtual bool start_object() = 0;
    virtual bool end_object() = 0;
    virtual bool start_list() = 0;
    virtual bool end_list() = 0;
    // The end of the reading by an error. byte: the place, counted from 1. range: a number exceeds a double's
    // range. why: a line.
    virtual void broken(size_t byte, bool range, const std::string& why) = 0;
};

// Whether the text was read to its end: false after broken(), and after an event returned false.
bool read_json(std::string_view text, JsonEvents& events);
