// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-tile-windows' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-tile-windows' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-tile-windows{axes=x,y rows=64}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-tile-windows{axes=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=h100},diagram-tile-windows{axes=r,c}' %s | filecheck %s --check-prefix WRONG

// WRONG: nowhere axis 'r' is reduced together with others, two in windows around rows, all of static sizes: such are x, y

!Q = tensor<8x128x120x64xf16, #diagram.array<[h, r, c, d]>>
!K = tensor<8x128x120x64xf16, #diagram.array<[h, x, y, d]>>
!S = tensor<8x128x120x128x120xf32, #diagram.array<[h, r, c, x, y]>>
!P = tensor<8x128x120x128x120xf16, #diagram.array<[h, r, c, x, y]>>
!m = tensor<8x128x120xf32, #diagram.array<[h, r, c]>>
!O = tensor<8x128x120x64xf32, #diagram.array<[h, r, c, d]>>

// Neighbours in an image: a tile of 16 x 8 reaches 28 x 20. What lies outside of the image is absent.
// What maps make of sums is made in tiles; rows of a last tile that there are not are left there.
// CHECK-LABEL: func.func @neighbours
// CHECK-SAME:    #hierarchy.step<"diagram-tile-windows", "[x, y] near tiles of 16 of r, 8 of c", "rows in tiles, each with all that its windows reach", "estimated
// CHECK-NEXT:  %Q_tiles = diagram.read %Q at "h, 16 * r_tile + r_c_in // 8, 8 * c_tile + r_c_in % 8, d" padded : tensor<8x128x120x64xf16, #diagram.array<[h, r, c, d]>> -> tensor<8x8x15x128x64xf16, #diagram.array<[h, r_tile, c_tile, r_c_in, d]>>
// CHECK-NEXT:  %K_tiles = diagram.read %K at "h, 16 * r_tile + x_y_in // 20 - 6, 8 * c_tile + x_y_in % 20 - 6, d" padded : tensor<8x128x120x64xf16, #diagram.array<[h, x, y, d]>> -> tensor<8x8x15x560x64xf16, #diagram.array<[h, r_tile, c_tile, x_y_in, d]>>
// CHECK-NEXT:  %S_tiles = diagram.contract %Q_tiles, %K_tiles over [d] accumulate f32
// CHECK-NEXT:  %W_tiles = diagram.where %S_tiles if "x_y_in // 20 <= r_c_in // 8 + 12 and r_c_in // 8 <= x_y_in // 20 and x_y_in % 20 <= r_c_in % 8 + 12 and r_c_in % 8 <= x_y_in % 20 and 6 <= 16 * r_tile + x_y_in // 20 and 16 * r_tile + x_y_in // 20 <= 133 and 6 <= 8 * c_tile + x_y_in % 20 and 8 * c_tile + x_y_in % 20 <= 125"
// CHECK-NEXT:  %m_tiles = diagram.reduce max %W_tiles over [x_y_in]
// CHECK-NEXT:  %E_tiles = diagram.map (%w = %W_tiles
// CHECK:       %l_tiles = diagram.reduce add %E_tiles over [x_y_in]
// CHECK-NEXT:  %P_tiles = diagram.cast %E_tiles
// CHECK-NEXT:  %V_tiles = diagram.read %V at "h, 16 * r_tile + x_y_in // 20 - 6, 8 * c_tile + x_y_in % 20 - 6, d" padded
// CHECK-NEXT:  %A_tiles = diagram.contract %P_tiles, %V_tiles over [x_y_in] accumulate f32
// CHECK-NEXT:  %O_tiles = diagram.map (%a = %A_tiles : {{.*}}, %b = %l_tiles
// CHECK:       %O = diagram.read %O_tiles at "h, r // 16, c // 8, 8 * (r % 16) + c % 8, d" padded
// CHECK-NEXT:  func.return %O
// ASKED-LABEL: func.func @neighbours
// ASKED-SAME:    "[x, y] near tiles of 8 of r, 8 of c"
// NONE-LABEL: func.func @neighbours
// NONE:         diagram.contract %P, %V over [x, y] accumulate f32
func.func @neighbours(%Q: !Q, %K: !K, %V: !K) -> !O {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= r + 6 and r <= x + 6 and y <= c + 6 and c <= y + 6" : !S
  %m = diagram.reduce max %W over [x, y] : !S -> !m
  %E = diagram.map (%w = %W : !S, %n = %m : !m) -> !S {
    %t = arith.subf %w, %n : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !m
  %P = diagram.cast %E : !S -> !P
  %A = diagram.contract %P, %V over [x, y] accumulate f32 : !P, !K -> !O
  %O = diagram.map (%a = %A : !O, %b = %l : !m) -> !O {
    %q = arith.divf %a, %b : f32
    diagram.yield %q : f32
  }
  func.return %O : !O
}
