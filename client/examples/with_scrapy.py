"""Crawl a site whatever it does to crawlers, and print each page's title: with_scrapy.py URL"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response


class Pages(Spider):
    name = "pages"

    def parse(self, response: Response, **_: Any) -> Iterator[Request]:
        assert isinstance(response, HtmlResponse)
        print(response.css("title::text").get(), response.url)
        yield from response.follow_all(css="a")


process = CrawlerProcess(
    {
        "DOWNLOADER_MIDDLEWARES": {"proxyfleet_client.adapters.scrapy.ProxyFleetMiddleware": 610},
        "PROXYFLEET_API": os.environ["PROXYFLEET_API"],
        "PROXYFLEET_TOKEN": os.environ.get("PROXYFLEET_TOKEN"),
        "PROXYFLEET_COOLDOWN": os.environ.get("COOLDOWN", 900),
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
    }
)
process.crawl(Pages, start_urls=[sys.argv[1]])
process.start()
