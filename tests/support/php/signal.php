<?php // SPDX-License-Identifier: Apache-2.0
// Sets a handler, is interrupted by that signal, and tells how often the handler ran.
$handled = 0;
pcntl_async_signals(true);
pcntl_signal(SIGUSR2, function () use (&$handled) { ++$handled; });
posix_kill(getmypid(), SIGUSR2);
usleep(1000);
pcntl_signal(SIGUSR2, SIG_DFL);
echo "handled $handled";
