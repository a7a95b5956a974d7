// SPDX-License-Identifier: Apache-2.0
#include "pm/elf.h"

#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <limits>
#include <link.h>
#include <optional>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "children/unique_fd.h"

namespace cede::pm {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char own_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr unsigned char own_data = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

// PHP has about ten segments. A file that claims thousands is not worth reading.
constexpr unsigned most_segments = 256;

bool read_at(int fd, void* target, std::size_t size, std::uint64_t offset) {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - size) {
        return false;
    }
    auto* bytes = static_cast<char*>(target);
    while (size > 0) {
        const ssize_t got = ::pread(fd, bytes, size, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        bytes += got;
        size -= static_cast<std::size_t>(got);
        offset += static_cast<std::uint64_t>(got);
    }
    return true;
}

// The machine that we were compiled for: what our own program's header says. There is no macro for it.
std::optional<std::uint16_t> own_machine() {
    const children::UniqueFd self{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    Header header{};
    if (!self || !read_at(self.get(), &header, sizeof header, 0)) {
        return std::nullopt;
    }
    return header.e_machine;
}

std::unexpected<std::string> damaged() {
    return std::unexpected<std::string>("the ELF file is cut short or damaged; install the package again");
}

std::expected<Header, std::string> read_header(int fd) {
    unsigned char ident[EI_NIDENT];
    if (!read_at(fd, ident, sizeof ident, 0) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
        return std::unexpected(
            "this is neither an ELF program nor a #! script; give the path of a PHP binary");
    }
    if (ident[EI_CLASS] != own_class || ident[EI_DATA] != own_data) {
        return std::unexpected(fmt::format(
            "this program is not {}-bit like cede, so the agent can not be loaded into it; install PHP for "
            "this machine's own architecture",
            sizeof(void*) * CHAR_BIT));
    }
    Header header{};
    if (!read_at(fd, &header, sizeof header, 0)) {
        return damaged();
    }
    if (const auto machine = own_machine(); machine && header.e_machine != *machine) {
        return std::unexpected(fmt::format(
            "this program is for another processor (ELF machine {}, cede's is {}); install PHP for this "
            "machine's own architecture",
            header.e_machine, *machine));
    }
    if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
        return std::unexpected("this ELF file is not a program; give the path of a PHP binary");
    }
    return header;
}

std::expected<std::string, std::string> read_loader_path(int fd, const Segment& segment) {
    if (segment.p_filesz < 2 || segment.p_filesz > PATH_MAX) {
        return damaged();
    }
    std::string path(static_cast<std::size_t>(segment.p_filesz), '\0');
    if (!read_at(fd, path.data(), path.size(), segment.p_offset)) {
        return damaged();
    }
    // The kernel insists on the NUL, too (load_elf_binary).
    if (path.back() != '\0' || path.front() != '/') {
        return damaged();
    }
    path.resize(std::strlen(path.c_str()));
    return path;
}

}  // namespace

std::expected<std::string, std::string> elf_loader(int fd) {
    const auto header = read_header(fd);
    if (!header) {
        return std::unexpected(header.error());
    }
    if (header->e_phnum > 0 && header->e_phentsize != sizeof(Segment)) {
        return damaged();
    }
    if (header->e_phnum > most_segments) {
        return damaged();
    }
    std::vector<Segment> segments(header->e_phnum);
    if (!read_at(fd, segments.data(), segments.size() * sizeof(Segment), header->e_phoff)) {
        return damaged();
    }
    for (const Segment& segment : segments) {
        if (segment.p_type == PT_INTERP) {
            return read_loader_path(fd, segment);
        }
    }
    return std::unexpected(
        "this program is statically linked, so the agent can not be loaded into it; install a dynamically "
        "linked PHP, "
        "like the packages of the distribution");
}

}  // namespace cede::pm
