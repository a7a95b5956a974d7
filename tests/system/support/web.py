# SPDX-License-Identifier: Apache-2.0
"""Real web servers in front of cede, each with a configuration of its own in the test's folder, not as a daemon."""
import os
import re

from . import procfs
from .http import fetch
from .ports import free_port
from .server import GROUP, PHP_CGI, USER, Cede
from .waiting import eventually

# Uploads of any size.
PHP_OPTIONS = ("-d", "post_max_size=0", "-d", "upload_max_filesize=1G", "-d", "max_execution_time=60")


class WebServer:
    """`start()` runs cede (as `pool`) and the web server on `port`."""

    name = ""

    def __init__(self, starter):
        self.starter = starter
        self.folder = starter.folder
        self.scripts = starter.scripts
        self.port = free_port()
        self.pool = None
        self.process = None

    def start(self, children=4, workers=4, options=(), pool=None):
        """`options`: of cede; `pool`: an already running server in its place."""
        self.pool = pool or self.starter.cede(children=children, options=options, php=PHP_OPTIONS)
        self._run(workers)
        return self

    def _run(self, workers):
        self.process = self.starter.processes.start(self.name, self.command(self._configuration(workers)))
        eventually(self._serves, f"{self.name} serves a page", 15)

    def _configuration(self, workers):
        path = os.path.join(self.folder, f"{self.name}.conf")
        with open(path, "w") as file:
            file.write(self.configuration(workers))
        return path

    def _serves(self):
        assert self.process.running, f"{self.name} ended:\n{self.process.log}"
        try:
            return self.fetch("/hello.php", timeout=5).status == 200
        except OSError:
            return False

    def fetch(self, path, **options):
        return fetch(self.port, path, **options)

    def configuration(self, workers):
        raise NotImplementedError

    def command(self, configuration):
        raise NotImplementedError


class Nginx(WebServer):
    name = "nginx"
    keepalive = 8

    def configuration(self, workers):
        temporary = "".join(
            f"  {kind}_temp_path {self.folder}/nginx-{kind};\n"
            for kind in ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")
        )
        address = self.pool.address
        backend = f"unix:{address}" if isinstance(address, str) else f"{address[0]}:{address[1]}"
        return f"""
{f"user {USER} {GROUP};" if os.geteuid() == 0 else ""}
worker_processes {workers};
daemon off;
error_log {self.folder}/nginx-error.log info;
pid {self.folder}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off;
{temporary}
  client_max_body_size 0;
  upstream php {{ server {backend}; keepalive {self.keepalive}; }}
  server {{
    listen 127.0.0.1:{self.port} reuseport;
    root {self.scripts};
    location / {{
      include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
      fastcgi_pass php;
      fastcgi_keep_conn on;
    }}
  }}
}}
"""

    def command(self, configuration):
        return ["/usr/sbin/nginx", "-e", f"{self.folder}/nginx-error.log", "-c", configuration]


class HAProxy(WebServer):
    name = "haproxy"
    fcgi_options = ()

    def configuration(self, workers):
        options = "".join(f"  option {option}\n" for option in self.fcgi_options)
        host, port = self.pool.address
        return f"""
global
  maxconn 1000
  nbthread {workers}
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
fcgi-app php
  docroot {self.scripts}
  path-info ^(/.+\\.php)(/.*)?$
  option keep-conn
{options}
frontend web
  bind 127.0.0.1:{self.port}
  default_backend php
backend php
  use-fcgi-app php
  http-reuse always
  server cede {host}:{port} proto fcgi
"""

    def command(self, configuration):
        return ["/usr/sbin/haproxy", "-db", "-f", configuration]


class Apache(WebServer):
    name = "apache"
    modules = "/usr/lib/apache2/modules"

    def configuration(self, workers):
        loaded = "".join(
            f"LoadModule {name}_module {self.modules}/mod_{name}.so\n"
            for name in ("mpm_event", "authz_core", "proxy", "proxy_fcgi")
        )
        host, port = self.pool.address
        return f"""
ServerRoot {self.folder}
DefaultRuntimeDir {self.folder}
ServerName localhost
PidFile {self.folder}/apache.pid
ErrorLog {self.folder}/apache-error.log
LogLevel warn
{loaded}
{f"User {USER}" if os.geteuid() == 0 else ""}
{f"Group {GROUP}" if os.geteuid() == 0 else ""}
Listen 127.0.0.1:{self.port}
StartServers {workers}
ServerLimit {workers}
ThreadsPerChild 16
ThreadLimit 16
MaxRequestWorkers {16 * workers}
MinSpareThreads 16
MaxSpareThreads {16 * workers}
DocumentRoot {self.scripts}
<Directory {self.scripts}>
  Require all granted
</Directory>
ProxyTimeout 30
KeepAliveTimeout 1
ProxyFCGIBackendType GENERIC
<Proxy "fcgi://{host}:{port}" enablereuse=on>
</Proxy>
<LocationMatch "\\.php$">
  SetHandler "proxy:fcgi://{host}:{port}"
</LocationMatch>
"""

    def command(self, configuration):
        return ["/usr/sbin/apache2", "-f", configuration, "-DFOREGROUND"]


class _ExecutedByWebServer:
    """cede as a child of the web server: its pid and its log, where a Process of ours has them."""

    def __init__(self, web_server, binary, log_path):
        self._web_server = web_server
        self._binary = binary
        self.log_path = log_path

    @property
    def pid(self):
        return eventually(self._find, "the web server executed cede")

    def _find(self):
        for pid in procfs.children(self._web_server.pid):
            try:
                if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(self._binary):
                    return pid
            except OSError:
                continue
        return None

    @property
    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def wait_for_log(self, pattern, timeout=15.0):
        return eventually(lambda: re.search(pattern, self.log, re.MULTILINE), f"a log line like {pattern!r}", timeout)


class Lighttpd(WebServer):
    """Executes cede by itself, with the listener as cede's standard input."""

    name = "lighttpd"

    def __init__(self, starter):
        super().__init__(starter)
        self._cede = []

    def start(self, children=4, workers=4, options=()):
        own = ["--children", children, "--log-level", "info", *options]
        self._cede = [self.starter.binary, "run", *own, "--", PHP_CGI, *PHP_OPTIONS]
        self._run(workers)
        process = _ExecutedByWebServer(self.process, self.starter.binary, f"{self.folder}/lighttpd-programs.log")
        self.pool = Cede(process, [f"{self.folder}/lighttpd.sock-0"], self.scripts).wait_until_ready()
        return self

    def configuration(self, workers):
        return f"""
server.modules = ( "mod_fastcgi" )
server.document-root = "{self.scripts}"
server.bind = "127.0.0.1"
server.port = {self.port}
server.errorlog = "{self.folder}/lighttpd-error.log"
server.breakagelog = "{self.folder}/lighttpd-programs.log"
server.upload-dirs = ( "{self.folder}" )
server.max-request-size = 0
{f'server.username = "{USER}"' if os.geteuid() == 0 else ""}
{f'server.groupname = "{GROUP}"' if os.geteuid() == 0 else ""}
fastcgi.server = ( ".php" => ( "cede" => (
  "bin-path" => "{" ".join(str(word) for word in self._cede)}",
  "socket" => "{self.folder}/lighttpd.sock",
  "max-procs" => 1,
  "check-local" => "disable",
) ) )
"""

    def command(self, configuration):
        return ["/usr/sbin/lighttpd", "-D", "-f", configuration]
