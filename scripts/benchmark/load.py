# SPDX-License-Identifier: Apache-2.0
"""Runs the load generator, and the page scripts that it asks for."""
import json
import os
import subprocess
import time

from .processes import BenchError, status_field

PAGES = {
    "trivial": '<?php echo "hi";',
    "slow": '<?php usleep(700000); echo "hi";',
    "work": '<?php usleep(50000); echo "hi";',
    "half-work": '<?php usleep(25000); echo "hi";',
    "page": '<?php usleep(100000); echo "hi";',
    "stall": '<?php sleep(5); echo "hi";',
    # Says that it has run, in a file that load.marks() reads.
    "mark": '<?php file_put_contents(__DIR__ . "/marks", ".", FILE_APPEND | LOCK_EX); echo "hi";',
    "pin": '<?php usleep(20000); echo "hi";',
    "probe": '<?php $s = function_exists("opcache_get_status") ? opcache_get_status(false) : false;'
             ' echo $s && $s["opcache_enabled"] ? "opcache" : "no opcache";',
}


LONGEST = 300  # seconds; far more than any run takes, even against a server that stalls


class Load:
    def __init__(self, program, folder, protocol):
        self.program = program
        self.protocol = [] if protocol == "fastcgi" else ["--protocol", protocol]
        self.folder = folder
        self.commands = []  # of the first run of each kind, for the report
        for name, source in PAGES.items():
            with open(self.page(name), "w") as out:
                out.write(source)

    def page(self, name):
        return os.path.join(self.folder, f"{name}.php")

    def clear_marks(self):
        """Of how often mark.php has run."""
        with open(os.path.join(self.folder, "marks"), "w"):
            os.chmod(os.path.join(self.folder, "marks"), 0o666)

    def marks(self):
        return os.stat(os.path.join(self.folder, "marks")).st_size

    def run(self, mode, server, page="trivial", expect="hi", **options):
        """One run to its end; its JSON object as a dict."""
        return self.result(self.start(mode, server, page, expect, **options))

    def start(self, mode, server, page="trivial", expect="hi", **options):
        """One run, which is to be watched until it ends; then its result()."""
        return self._start(mode, server, page, expect, options)

    def result(self, process):
        return self._result(process, LONGEST)

    def run_watching_memory(self, mode, server, page="trivial", expect="hi", **options):
        """As run(); also the largest VmRSS (kB) of the server's first process meanwhile."""
        process = self._start(mode, server, page, expect, options)
        end = time.monotonic() + LONGEST
        largest = 0
        while process.poll() is None and time.monotonic() < end:
            largest = max(largest, status_field(server.pid, "VmRSS"))
            time.sleep(0.05)
        return self._result(process, 1), largest

    def check_opcache(self, server):
        """Without it the comparison would be about compiling."""
        result = self.run("burst", server, page="probe", expect="opcache", clients=1)
        if result["ok"] != 1:
            raise BenchError(f"{server.name} runs without opcache ({result['errors']}); "
                             f"{server.settings.opcache_hint}")

    def _start(self, mode, server, page, expect, options):
        command = [self.program, mode, *self.protocol, "--address", server.address, "--script", self.page(page),
                   "--expect", expect]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        shown = ["cede-load", *command[1:]]
        self._remember(" ".join(shown).replace(server.address, "ADDRESS").replace(self.folder + "/", ""))
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _remember(self, command):
        if command not in self.commands and "probe.php" not in command:
            self.commands.append(command)

    def _result(self, process, seconds):
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the load generator took more than {LONGEST} s and was stopped") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise BenchError(f"the load generator failed: {err.strip()}")
        result = json.loads(out)
        if result["ok"] == 0:  # no answers, no times
            result.update((key, None) for key in result if key.endswith("_ms"))
        return result
