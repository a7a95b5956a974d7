// SPDX-License-Identifier: Apache-2.0
#include "tests/agent/client.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

#include "tests/support/records.h"

namespace cede::tests {
namespace {

// False at the end of the stream, at an error, or when nothing comes.
bool read_exactly(int fd, std::string& bytes, std::size_t size) {
    bytes.assign(size, '\0');
    std::size_t have = 0;
    while (have < size) {
        pollfd watched{fd, POLLIN, 0};
        if (::poll(&watched, 1, 10000) <= 0) {
            return false;
        }
        const ssize_t got = ::recv(fd, bytes.data() + have, size - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            return false;
        }
        have += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return true;
}

std::size_t unsigned_of(char byte) {
    return static_cast<unsigned char>(byte);
}

}  // namespace

std::string command(std::string_view name, std::string_view argument, bool keep, std::string_view body) {
    return request(pair("COMMAND", name) + pair("ARGUMENT", argument), body, keep);
}

Answer read_answer(int fd) {
    Answer answer;
    std::string header;
    std::string content;
    while (read_exactly(fd, header, 8) &&
           read_exactly(fd, content,
                        unsigned_of(header[4]) * 256 + unsigned_of(header[5]) + unsigned_of(header[6]))) {
        if (header[1] == 3) {
            answer.complete = true;
            return answer;
        }
        answer.text += content.substr(0, content.size() - unsigned_of(header[6]));
    }
    answer.closed = true;
    return answer;
}

std::string ask(int fd, const std::string& request) {
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
        return "(not sent)";
    }
    const Answer answer = read_answer(fd);
    return answer.complete ? answer.text : "(closed)";
}

bool ends_cleanly(int fd) {
    pollfd watched{fd, POLLIN, 0};
    char byte = 0;
    return ::poll(&watched, 1, 5000) > 0 && ::recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

}  // namespace cede::tests
