// Reads msgpack whose whole numbers have been taken out, as tracer/planes.py does it, and plain msgpack too.

const TEXT = new TextDecoder();
const KNOWN = 4096; // texts that are remembered: the same few names stand in every record

/** The numbers of the planes: all lowest bytes, then all second ones, and so on. */
export function numbersOf(planes) {
  const count = planes.length / 4;
  const numbers = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    numbers[i] = planes[i] | (planes[count + i] << 8) | (planes[2 * count + i] << 16) | (planes[3 * count + i] << 24);
  }
  return numbers;
}

/** The value in `bytes`, in which each 0 stands for the next one of `numbers` where there are any. */
export function read(bytes, numbers = null) {
  const reader = new Reader(bytes, numbers);
  const value = reader.value();
  if (numbers && reader.next !== numbers.length) {
    throw new Error("The block is damaged: its numbers do not fit its structure.");
  }
  return value;
}

class Reader {
  constructor(bytes, numbers) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.numbers = numbers;
    [this.at, this.next] = [0, 0];
  }

  value() {
    const head = this.bytes[this.at++];
    if (head === 0 && this.numbers) return this.numbers[this.next++];
    if (head < 0x80) return head;
    if (head < 0x90) return this.map(head & 15);
    if (head < 0xa0) return this.list(head & 15);
    if (head < 0xc0) return this.text(head & 31);
    if (head >= 0xe0) return head - 256;
    return this.other(head);
  }

  other(head) {
    switch (head) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.binary(this.number(0xcc + head - 0xc4));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.text(this.number(0xcc + head - 0xd9));
      case 0xdc:
      case 0xdd:
        return this.list(this.number(0xcd + head - 0xdc));
      case 0xde:
      case 0xdf:
        return this.map(this.number(0xcd + head - 0xde));
      default:
        return this.number(head);
    }
  }

  number(head) {
    const { view, at } = this;
    switch (head) {
      case 0xca:
        return this.step(4, view.getFloat32(at));
      case 0xcb:
        return this.step(8, view.getFloat64(at));
      case 0xcc:
        return this.step(1, view.getUint8(at));
      case 0xcd:
        return this.step(2, view.getUint16(at));
      case 0xce:
        return this.step(4, view.getUint32(at));
      case 0xcf:
        return this.step(8, Number(view.getBigUint64(at)));
      case 0xd0:
        return this.step(1, view.getInt8(at));
      case 0xd1:
        return this.step(2, view.getInt16(at));
      case 0xd2:
        return this.step(4, view.getInt32(at));
      case 0xd3:
        return this.step(8, Number(view.getBigInt64(at)));
      default:
        throw new Error(`The block is damaged: nothing in it begins with byte ${head}.`);
    }
  }

  step(width, value) {
    this.at += width;
    return value;
  }

  list(length) {
    const list = [];
    for (let i = 0; i < length; i++) list.push(this.value());
    return list;
  }

  map(size) {
    const map = {};
    for (let i = 0; i < size; i++) {
      const key = this.value();
      if (key === "__proto__") Object.defineProperty(map, key, { value: this.value(), enumerable: true });
      else map[key] = this.value();
    }
    return map;
  }

  binary(length) {
    return this.bytes.subarray(this.at, (this.at += length));
  }

  text(length) {
    const { bytes, at } = this;
    this.at += length;
    if (length > 32) return TEXT.decode(bytes.subarray(at, at + length));
    let hash = length;
    for (let i = at; i < at + length; i++) hash = (Math.imul(hash, 31) + bytes[i]) | 0;
    const place = hash & (KNOWN - 1);
    const known = texts[place];
    if (known && known.hash === hash && same(known.bytes, bytes, at, length)) return known.text;
    const text = TEXT.decode(bytes.subarray(at, at + length));
    texts[place] = { hash, text, bytes: bytes.slice(at, at + length) };
    return text;
  }
}

const texts = Array(KNOWN);

function same(known, bytes, at, length) {
  if (known.length !== length) return false;
  for (let i = 0; i < length; i++) if (known[i] !== bytes[at + i]) return false;
  return true;
}
