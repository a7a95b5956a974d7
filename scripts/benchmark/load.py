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
    "pin": '<?php usleep(20000); echo "hi";',
    "probe": '<?php $s = function_exists("opcache_get_status") ? opcache_get_status(false) : false;'
             ' echo $s && $s["opcache_enabled"] ? "opcache" : "no opcache";',
}


class Load:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.commands = []  # of the first run of each kind, for the report
        for name, source in PAGES.items():
            with open(self.page(name), "w") as out:
                out.write(source)

    def page(self, name):
        return os.path.join(self.folder, f"{name}.php")

    def run(self, mode, server, page="trivial", expect="hi", **options):
        """One run to its end; its JSON object as a dict."""
        process = self._start(mode, server, page, expect, options)
        out, err = process.communicate()
        return self._result(process, out, err)

    def run_watching_memory(self, mode, server, page="trivial", expect="hi", **options):
        """As run(); also the largest VmRSS (kB) of the server's first process meanwhile."""
        process = self._start(mode, server, page, expect, options)
        largest = 0
        while process.poll() is None:
            largest = max(largest, status_field(server.pid, "VmRSS"))
            time.sleep(0.05)
        out, err = process.communicate()
        return self._result(process, out, err), largest

    def check_opcache(self, server):
        """Without it the comparison would be about compiling."""
        result = self.run("burst", server, page="probe", expect="opcache", clients=1)
        if result["ok"] != 1:
            raise BenchError(f"{server.name} runs without opcache ({result['errors']}); "
                             "enable opcache in the php.ini or conf.d of --php-ini")

    def _start(self, mode, server, page, expect, options):
        command = [self.program, mode, "--address", server.address, "--script", self.page(page), "--expect", expect]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        shown = [each.replace(self.folder + "/", "") for each in command]
        shown[0] = "cede-load"
        self._remember(" ".join(shown).replace(server.address, "ADDRESS"))
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _remember(self, command):
        if command not in self.commands and "probe.php" not in command:
            self.commands.append(command)

    def _result(self, process, out, err):
        if process.returncode != 0:
            raise BenchError(f"the load generator failed: {err.strip()}")
        result = json.loads(out)
        if result["ok"] == 0:  # no answers, no times
            result.update((key, None) for key in result if key.endswith("_ms"))
        return result
