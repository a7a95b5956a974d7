// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/options.h"

namespace cede::bench {

const char* usage() noexcept {
    return R"(usage: cede-load MODE --address ADDRESS --script FILE [options]

Sends requests as web-server workers with a keep-alive pool each do, and prints one
JSON object. A request takes the connection of its own worker that has been idle for
the shortest time, else opens a new one. FastCGI is spoken as nginx does: a request
on a reused connection that is closed before the answer's first byte is sent again,
once. LSAPI is spoken as OpenLiteSpeed does: a worker has at most --max-connections,
further requests wait in its queue; a connect may take 2 s; a request whose
connection is lost is sent again, three times in all; CONN_CLOSE is obeyed.

modes
  closed          --clients clients, each with one request under way
  burst           --clients requests at once, until all are served or given up
  bursts          --bursts bursts of --clients requests, --every seconds apart, beside
                  --rate requests a second of --other-script for --duration
  rate            --rate requests a second for --duration; latency counts from the
                  moment at which a request was due
  new-connection  per round: --children kept connections make a request each (of
                  --other-script) so that every child is connected and idle, then one
                  new connection makes one; its time is reported
  idle            --idle kept connections that made one request each, --clients
                  clients in a closed loop beside them, then one more request on each
  The last two leave the rest out when a server serves none, or for too long too few.
  groups          --groups groups of --clients clients each, which start --stagger apart;
                  a client has one connection and sends a request --think behind each
                  answer; by second and group: answers, and how many of them came on a
                  connection that had had one
  leavers         --children requests of --other-script, which keep all children busy;
                  meanwhile --clients clients, --at-once at a time, that connect, send a
                  request for --leaving-script and close after --stay; then --requests
                  requests at once, each on a new connection
  overload        --rate requests a second for --duration; those with an answer of
                  status 503 have figures of their own
  slow            --rate requests a second for --duration, first alone, then beside --slow
                  clients that send one byte of a request's head each second
  probe           --idle kept connections that made one request each; then, each --every
                  for --duration, one request (of --other-script) on a new connection

options
  --protocol NAME       fastcgi or lsapi; fastcgi
  --address ADDRESS     127.0.0.1:PORT, [::1]:PORT, /path or uds://path
  --script FILE         SCRIPT_FILENAME
  --other-script FILE   see modes; default: the same
  --expect TEXT         the body of every answer to --script; default: any
  --keep-alive on|off   pools (and KEEP_CONN), or a connection per request, which with
                        lsapi is closed from this side; on
  --pools N             web-server workers; 8
  --max-connections N   of a worker; fastcgi: no limit, lsapi: 10. The idle ones of idle
                        and those of new-connection come on top
  --clients N           clients, spread over the pools; 1
  --duration S          5
  --requests N          closed: stop after this many instead
  --warmup S            closed, idle: not counted, before the duration; 0
  --patience S          the client gives up after this time; with lsapi its worker sends
                        ABORT_REQUEST and closes; 10
  --bursts N --every S  5, 20
  --rate R              5
  --children N          10
  --rounds N            100
  --idle N              10000
  --groups N --stagger S --think S     3, 1, 0
  --table on|off        groups: also as a table, on the standard error; on
  --at-once N --stay S  100, 0.1
  --leaving-script FILE default: the same as --script
  --slow N              1000
)";
}

}  // namespace cede::bench
