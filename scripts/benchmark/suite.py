# SPDX-License-Identifier: Apache-2.0
"""One comparison: its servers, cases, figures to reach, and how its report is headed."""


class Suite:
    def __init__(self, protocol, stem, title, sockets, intro, settings, cases, goals, colours):
        self.protocol = protocol
        self.stem = stem  # of the names of its results
        self.title = title
        self.sockets = sockets  # kinds of listener that it knows, the default first
        self.intro = intro
        self.settings = settings  # made from (options, folder)
        self.cases = cases
        self.goals = goals
        self.colours = colours  # by the names of the servers in the plot; the first is the one that is judged

    @property
    def compared(self):
        """The names of the servers whose rates stand side by side, the one that is judged first."""
        return list(self.colours)

    @property
    def servers(self):
        """The names of all servers."""
        return list(dict.fromkeys(each.name for case in self.cases for each in case.servers))
