"""Decodes and encodes images with Pillow, within bounds.

Foreign bytes reach decoders here. Only the three supported formats are tried, an image with too
many pixels is refused before it is decoded, and any exception of a decoder on hostile bytes, which
is documented nowhere, becomes a ShapingError.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any, Final

from PIL import Image, UnidentifiedImageError

from accord.shaping.content import ShapingError
from accord.shaping.sniffing import HEAD, JPEG, PNG, WEBP, sniff

MAX_PIXELS: Final = 50_000_000

_FORMATS: Final = {JPEG: "JPEG", PNG: "PNG", WEBP: "WEBP"}
_MODES: Final = {
    JPEG: ("L", "RGB", "CMYK"),
    PNG: ("L", "LA", "I;16", "I", "RGB", "RGBA"),
    WEBP: ("RGB", "RGBA"),
}
# Metadata besides EXIF, most important first.
_METADATA: Final = {
    JPEG: ("icc_profile", "comment", "xmp"),
    PNG: ("icc_profile",),
    WEBP: ("icc_profile", "xmp"),
}
_PALETTE: Final = ("P", "PA")
# Sum of the JPEG standard's luminance table, from which encoders derive theirs by quality.
_STANDARD_SUM: Final = 3_688
_JPEG_TABLES: Final = 620
_UNKNOWN_QUALITY: Final = 85
_ORIENTATION: Final = 0x0112
_TIME: Final = 0x0132
_POSITION: Final = 0x8825
_MAX_MARKER: Final = 65_000  # fits into one JPEG segment, with its framing


class ImageFile:
    """An encoded image that can be re-encoded at another scale and quality."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.content_type = sniff(payload[:HEAD])
        if not self.content_type:
            raise ShapingError("expected a JPEG, PNG or WebP image")
        self._format = _FORMATS[self.content_type]
        self._image = self._open()
        self.width, self.height = self._image.size
        if self.pixels > MAX_PIXELS:
            raise ShapingError(
                f"an image of {self.width} x {self.height} pixels, at most {MAX_PIXELS} accepted"
            )
        self.quality = self._estimate_quality()
        self._pixels: Image.Image | None = None
        self._scaled: tuple[tuple[int, int], Image.Image] | None = None
        self._metadata: dict[str, Any] = {}
        self._is_palette = self._image.mode in _PALETTE

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def overhead(self) -> int:
        """Bytes besides pixels."""
        metadata = sum(map(len, self._metadata.values()))
        return metadata + (_JPEG_TABLES if self.content_type == JPEG else 0)

    def _open(self) -> Image.Image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # size warnings: the caller checks sizes
                return Image.open(BytesIO(self.payload), formats=[self._format])
        except UnidentifiedImageError:
            raise ShapingError(f"a broken {self._format} image") from None
        except Exception as error:
            raise ShapingError(f"a broken {self._format} image: {_error_text(error)}") from error

    def load(self, scale: float) -> None:
        """Decode at `scale` of the size or more."""
        try:
            # A hostile file can make Pillow warn; that must not reach a log.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self.content_type == JPEG:
                    # Rounding up would decode more than needed.
                    size = max(1, int(self.width * scale)), max(1, int(self.height * scale))
                    self._image.draft(self._image.mode, size)
                self._image.load()
                self._pixels = self._plain(self._image)
        except ShapingError:
            raise
        except MemoryError:
            raise ShapingError("an image that needs more memory than shaping may use") from None
        except Exception as error:
            raise ShapingError(f"a broken {self._format} image: {_error_text(error)}") from error

    def encode(self, scale: float, quality: int) -> bytes:
        """The image at `scale` of its size, or as loaded if that is smaller."""
        try:
            return self._encode(self._resized(scale), quality)
        except MemoryError:
            raise ShapingError("an image that needs more memory than shaping may use") from None
        except Exception as error:
            raise ShapingError(f"{self._format} can't be written: {_error_text(error)}") from error

    def keep_metadata_within(self, max_bytes: int) -> None:
        """Keep as much metadata as fits into `max_bytes`."""
        max_bytes = min(max_bytes, _MAX_MARKER)
        exif = self._exif(max_bytes)
        self._metadata = {"exif": exif} if exif else {}
        max_bytes -= len(exif)
        for name in _METADATA[self.content_type]:
            octets = self._image.info.get(name)
            if isinstance(octets, bytes) and 0 < len(octets) <= max_bytes:
                self._metadata[name] = octets
                max_bytes -= len(octets)

    def _exif(self, max_bytes: int) -> bytes:
        """EXIF without its preview; if too large, the essential tags, or just the orientation."""
        try:
            found = self._image.getexif()
            if not found:
                return b""
            short, shortest = Image.Exif(), Image.Exif()
            for tag in (_ORIENTATION, _TIME):
                if tag in found:
                    short[tag] = found[tag]
            if position := found.get_ifd(_POSITION):
                short[_POSITION] = position
            for exif in (found, short):
                octets = exif.tobytes()
                if len(octets) <= max_bytes:
                    return octets
            shortest[_ORIENTATION] = int(found.get(_ORIENTATION, 1))
            return shortest.tobytes()
        except Exception:  # broken EXIF data is no reason to abandon the image
            return b""

    def _plain(self, image: Image.Image) -> Image.Image:
        """Converts to a mode that can be scaled and written."""
        if "transparency" in image.info:
            image = image.convert("RGBA")
            image.info.pop("transparency", None)
        elif image.mode in _PALETTE:
            image = image.convert("RGBA" if image.mode == "PA" else "RGB")
        elif image.mode == "1":
            image = image.convert("L")
        if image.mode not in _MODES[self.content_type]:
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        return image

    def _resized(self, scale: float) -> Image.Image:
        assert self._pixels is not None, "loaded before it is encoded"
        wanted = max(1, int(self.width * scale)), max(1, int(self.height * scale))
        if wanted[0] >= self._pixels.width and wanted[1] >= self._pixels.height:
            return self._pixels
        if self._scaled is None or self._scaled[0] != wanted:
            resized = self._pixels.resize(wanted, Image.Resampling.BICUBIC, reducing_gap=2.0)
            self._scaled = wanted, resized
        return self._scaled[1]

    def _encode(self, image: Image.Image, quality: int) -> bytes:
        sink = BytesIO()
        options: dict[str, Any] = dict(self._metadata)
        if self.content_type == PNG:
            if self._is_palette:
                method = Image.Quantize.FASTOCTREE if image.mode == "RGBA" else None
                image = image.quantize(256, method=method)
            options.setdefault("icc_profile", None)
        elif self.content_type == WEBP:
            options |= {
                "quality": quality,
                "method": 1,
            }  # other methods take twice as long for no gain
        else:
            options.setdefault("comment", None)
            options["quality"] = quality
        image.save(sink, self._format, **options)
        return sink.getvalue()

    def _estimate_quality(self) -> int:
        """Estimates a JPEG's quality from its first quantisation table."""
        tables: dict[int, list[int]] | None = getattr(self._image, "quantization", None)
        if not tables or 0 not in tables:
            return _UNKNOWN_QUALITY
        percent = max(1, 100 * sum(tables[0]) // _STANDARD_SUM)
        quality = 5_000 // percent if percent > 100 else (200 - percent) // 2
        return max(1, min(100, quality))


def _error_text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]
