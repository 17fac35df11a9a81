// Rows of a table that tokens choose, normalised by their root mean square: no array of the rows is written. A token that
// is no row of the table finds zeros.
//
//   treadle run examples/embedding.mlir --size t=1000 --size v=5000

!W = tensor<?x512xf16, #diagram.array<[v, d]>>
!token = tensor<?xi32, #diagram.array<[t]>>
!X = tensor<?x512xf16, #diagram.array<[t, d]>>
!Y = tensor<?x512xf32, #diagram.array<[t, d]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @embedding(%W: !W, %token: !token {diagram.up_to = "v"}) -> !X
    attributes {sizes = #diagram.sizes<v = 300, t = 70>} {
  %X = diagram.read %W at "token[t], d" padded with (token = %token : !token) : !W -> !X
  %squares = diagram.map (%x = %X : !X) -> !Y {
    %y = arith.extf %x : f16 to f32
    %s = arith.mulf %y, %y : f32
    diagram.yield %s : f32
  }
  %sum = diagram.reduce add %squares over [d] : !Y -> !r
  %normal = diagram.map (%x = %X : !X, %s = %sum : !r) -> !Y {
    %y = arith.extf %x : f16 to f32
    %count = arith.constant 512.0 : f32
    %little = arith.constant 1.0e-5 : f32
    %mean = arith.divf %s, %count : f32
    %more = arith.addf %mean, %little : f32
    %factor = math.rsqrt %more : f32
    %z = arith.mulf %y, %factor : f32
    diagram.yield %z : f32
  }
  %Z = diagram.cast %normal : !Y -> !X
  func.return %Z : !X
}
